-- Check that each request of a range is in the structures that it has to be in, and in no others; repair if asked.
-- @use accounts amounts audit_findings clock eligibility fair_share_order lanes leases queue_order rechecks requests work_budget
-- @reads delayed pool_holds pool_queue_syncs task unstarted
-- @writes component_lanes ended lane lane_walltimes leases meta outbox pool_allocations pool_policy_queue pool_queue
-- @writes pool_walltime_ends rejected request requests waiting
-- @args now after count repair
-- @reply audited differences last

clock.start(args.now)
audit_findings.start(args.repair)

-- Return the expected sorted sets of a request (key → score, `true` for any score), and all sets it could wrongly be in.
local function expected_keys(request, lane)
  local expected_scores, possible_keys = {}, {keys.waiting(), keys.leases(), keys.ended(), keys.rejected(), keys.lane(lane.id), keys.lane_walltimes(lane.id)}
  for _, name in ipairs(lanes.component_pools(lane)) do
    local pool_keys = {keys.pool_queue(name), keys.pool_policy_queue(name, lane.component), keys.pool_allocations(name), keys.pool_walltime_ends(name)}
    for _, key in ipairs(pool_keys) do possible_keys[#possible_keys + 1] = key end
  end
  if request.status == states.queued then
    local lane_score = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
    expected_scores[keys.waiting()] = true
    expected_scores[keys.lane(lane.id)] = lane_score
    if request.walltime_s then expected_scores[keys.lane_walltimes(lane.id)] = tonumber(request.walltime_s) end
    for _, name in ipairs(lanes.pools(lane)) do
      local path = accounts.path(name, lane.component)
      local queue_key, policy_queue_key = keys.pool_queue(name), keys.pool_policy_queue(name, lane.component)
      if path[#path].fields.reviewing or redis.call('ZSCORE', keys.pool_queue_syncs(name), lane.id) then
        expected_scores[queue_key], expected_scores[policy_queue_key] = 'either', 'either'
      elseif lanes.is_attached(path[#path], lane) then
        expected_scores[queue_key], expected_scores[policy_queue_key] = queue_order.rank_score(path[#path], path[1], lane_score), fair_share_order.applies(path[#path]) and lane_score or nil
      end
    end
  elseif string.find(transitions, ' ' .. request.status .. '>', 1, true) then
    expected_scores[keys.leases()] = true
    if request.pool ~= '' then expected_scores[keys.pool_allocations(request.pool)] = tonumber(request.fence) end
    local walltime_ms = request.pool ~= '' and request.walltime_s and tonumber(request.walltime_s) * 1000
    if walltime_ms then expected_scores[keys.pool_walltime_ends(request.pool)] = tonumber(request.granted_ms) + walltime_ms end
  else
    for _, key in ipairs({keys.ended(), request.status == states.rejected and keys.rejected() or nil}) do expected_scores[key] = tonumber(request.ended_ms) end
  end
  return expected_scores, possible_keys
end

local function new_deadline(request, key)
  local lease_runs = key == keys.leases() and leases.has_started(request)
  local seconds = lease_runs and request.lease_s or key == keys.waiting() and requests.queue_ttl_s(request)
  return seconds and clock.after(seconds) or const.MAX_AMOUNT
end

-- Separate a request from its lost task. If it has started, it goes on without the task; else it expires now.
local function release_from_task(request)
  if (request.started_ms or '') ~= '' then return redis.call('HDEL', keys.request(request.id), 'task') end
  redis.call('ZADD', request.status == states.queued and keys.waiting() or keys.leases(), amounts.format(clock.now), request.id)
end

-- Check that the task of a request refers to it, and that the outbox has the task if it is still to be sent.
local function check_task(request)
  local task, status = request.task, request.status
  local of = redis.call('HGET', keys.task(task), 'request')
  local is_ended = not string.find(transitions, ' ' .. status .. '>', 1, true)
  if of ~= request.id then
    if not is_ended and audit_findings.add('task', task .. ' ' .. request.id, of, request.id) then release_from_task(request) end
    return
  end
  local outbox_time = false
  for _, key in ipairs({keys.outbox(), keys.unstarted(), keys.delayed()}) do outbox_time = outbox_time or redis.call('ZSCORE', key, task) end
  if not outbox_time and (is_ended or status ~= states.queued and (request.started_ms or '') == '') then
    local repairs = audit_findings.add('task', task .. ' ' .. status .. ' in the outbox', nil, 'there')
    if repairs then redis.call('ZADD', keys.outbox(), amounts.format(clock.now), task) end
  end
end

local function check(id)
  local request = requests.load(id)
  if not request then return audit_findings.add('request', id, nil, 'a request') and redis.call('ZREM', keys.requests(), id) end
  local lane = lanes.of(request)
  local expected_scores, possible_keys = expected_keys(request, lane)
  for _, key in ipairs(possible_keys) do
    local stored, expected = tonumber(redis.call('ZSCORE', key, id)), expected_scores[key]
    local is_right = expected == 'either' or expected == true and stored or expected == stored
    if not is_right and audit_findings.add('request', id .. ' ' .. request.status .. ' in ' .. key, stored, expected) then
      if expected then redis.call('ZADD', key, amounts.format(expected == true and new_deadline(request, key) or expected), id)
      else redis.call('ZREM', key, id) end
    end
  end
  local hold_pool = request.victim_hold_pool
  if hold_pool and (request.status ~= states.queued or redis.call('HEXISTS', keys.pool_holds(hold_pool), id) == 0) then
    if audit_findings.add('hold', hold_pool .. ' ' .. id, 'noted', nil) then redis.call('HDEL', keys.request(id), 'victim_hold_pool') end
  end
  if request.task then check_task(request) end
  if request.status ~= states.queued then return end
  local lane_exists = redis.call('ZSCORE', keys.component_lanes(lane.component), lane.id)
  for _, name in ipairs(lanes.component_pools(lane)) do
    local path = accounts.path(name, lane.component)
    local pool, is_eligible = path[#path], not eligibility.refusal(path, lane)
    if not pool.fields.reviewing and (not lane_exists or lanes.is_attached(pool, lane) ~= is_eligible) then
      if audit_findings.add('lane', name .. ' ' .. lane.id, lanes.is_attached(pool, lane), is_eligible) then
        redis.call('ZADD', keys.component_lanes(lane.component), 0, lane.id)
        rechecks.start(pool)
      end
    end
  end
end

local function check_counter(name, minimum)
  local stored = tonumber(redis.call('HGET', keys.meta(), name)) or 0
  if stored >= minimum then return end
  local repairs = audit_findings.add('counter', name, amounts.format(stored), 'at least ' .. amounts.format(minimum))
  if repairs then redis.call('HSET', keys.meta(), name, amounts.format(minimum)) end
end

local ids, last = redis.call('ZRANGEBYSCORE', keys.requests(), '(' .. args.after, '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(args.count)), ''
for i = 1, #ids, 2 do
  if i > 1 and work_budget.is_used_up() then break end
  check(ids[i])
  last = ids[i + 1]
  check_counter('seq', tonumber(ids[i + 1]))
  check_counter('fence', tonumber(redis.call('HGET', keys.request(ids[i]), 'fence') or 0) or 0)
end
return reply.audited(audit_findings.list(), last)
