-- Compare a range of the stored waiters or lanes of a subject (a token or component with limits of its own) with the requests and tasks.
-- @use audit_findings lanes requests waiter_counts
-- @reads delayed limited_lanes task
-- @writes limited_subjects limited_waiting
-- @args kind subject cursor count repair
-- @reply audited differences cursor

audit_findings.start(args.repair)

-- True if the subject counts a waiter of this lane: a queued request, or a delayed task.
local function is_counted(lane_id, id)
  local task = string.match(id, '^task/(.+)$')
  local limited_by
  if task then
    limited_by = redis.call('ZSCORE', keys.delayed(), task) and redis.call('HGET', keys.task(task), 'limited_by')
  else
    local request = requests.load(id)
    limited_by = request and request.status == states.queued and lanes.of(request).id == lane_id and request.limited_by
  end
  return string.find(' ' .. (limited_by or '') .. ' ', ' ' .. args.subject .. ' ', 1, true) ~= nil
end

local scanned
if args.kind == 'waiting' then
  scanned = redis.call('ZSCAN', keys.limited_waiting(args.subject), args.cursor, 'COUNT', args.count)
  for i = 1, #scanned[2], 2 do
    local lane_id, id = string.match(scanned[2][i], '^(.*)\n(.*)$')
    if not (lane_id and is_counted(lane_id, id)) and audit_findings.add('limit', args.subject .. ' ' .. (id or scanned[2][i]), 'counted', nil) then
      redis.call('ZREM', keys.limited_waiting(args.subject), scanned[2][i])
    end
  end
else
  scanned = redis.call('SSCAN', keys.limited_lanes(args.subject), args.cursor, 'COUNT', args.count)
  for _, lane_id in ipairs(scanned[2]) do
    if not waiter_counts.has_waiters(args.subject, lane_id) and audit_findings.add('limit', args.subject .. ' ' .. lane_id, 'counted', nil) then
      waiter_counts.forget_lane(args.subject, lane_id)
    end
  end
  if redis.call('EXISTS', keys.limited_lanes(args.subject)) == 0 and redis.call('SISMEMBER', keys.limited_subjects(), args.subject) == 1 then
    if audit_findings.add('limit', args.subject, 'listed', nil) then redis.call('SREM', keys.limited_subjects(), args.subject) end
  end
end
return reply.audited(audit_findings.list(), scanned[1])
