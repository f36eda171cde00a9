-- Check that each waiter or delayed task of a range is counted: its lane as a shape of the workspace, and the waiter for the token and
-- the component whose limits count it.
-- @use audit_findings lanes requests task_delays tasks waiter_counts
-- @reads delayed limited_lanes limited_subjects limited_waiting waiting
-- @writes lanes
-- @args kind cursor count repair
-- @reply audited differences cursor

audit_findings.start(args.repair)

-- Return the subjects that should count a waiter and do not.
local function missing_subjects(limited_by, lane, id)
  local subjects = {}
  for subject in string.gmatch(limited_by or '', '%S+') do
    local is_counted = redis.call('ZSCORE', keys.limited_waiting(subject), lane.id .. '\n' .. id)
      and redis.call('SISMEMBER', keys.limited_lanes(subject), lane.id) == 1 and redis.call('SISMEMBER', keys.limited_subjects(), subject) == 1
    if not is_counted then subjects[#subjects + 1] = subject end
  end
  return subjects
end

local function check_counted(limited_by, lane, id)
  for _, subject in ipairs(missing_subjects(limited_by, lane, id)) do
    if audit_findings.add('limit', subject .. ' ' .. id, nil, 'counted') then waiter_counts.count(subject, lane, id) end
  end
end

local function check_waiter(id)
  local request = requests.load(id)
  if not request or request.status ~= states.queued then return end
  local lane = lanes.of(request)
  if redis.call('SISMEMBER', keys.lanes(), lane.id) == 0 and audit_findings.add('lane', lane.id, nil, 'listed') then
    redis.call('SADD', keys.lanes(), lane.id)
  end
  check_counted(request.limited_by, lane, id)
end

local function check_task(id)
  local task = tasks.load(id)
  if task then check_counted(task.limited_by, task_delays.lane(task), 'task/' .. id) end
end

local index, check = keys.waiting(), check_waiter
if args.kind == 'delayed' then index, check = keys.delayed(), check_task end
local scanned = redis.call('ZSCAN', index, args.cursor, 'COUNT', args.count)
for i = 1, #scanned[2], 2 do check(scanned[2][i]) end
return reply.audited(audit_findings.list(), scanned[1])
