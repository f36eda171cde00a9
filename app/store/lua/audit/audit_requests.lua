-- Compare a stretch of requests with the structures each has to be in, and in no others; repair if asked.
-- @use accounts amounts audit_findings clock eligibility lanes queue_order rechecks requests
-- @keys delayed outbox task unstarted request meta requests waiting leases ended lane lane_walltimes pool_queue pool_allocations pool_walltime_ends pool_holds pool_unfinished component_lanes
-- @args now after count repair
-- @reply audited differences last

clock.start(args.now)
audit_findings.start(args.repair)

-- Which sorted sets a request should be in: key → score, `true` for any; and `maybe`, the keys it could wrongly be in.
local function belongs(request, lane)
  local should, maybe = {}, {keys.waiting(), keys.leases(), keys.ended(), keys.lane(lane.id), keys.lane_walltimes(lane.id)}
  for _, name in ipairs(lanes.pools(lane.component)) do
    for _, key in ipairs({keys.pool_queue(name), keys.pool_allocations(name), keys.pool_walltime_ends(name)}) do maybe[#maybe + 1] = key end
  end
  if request.status == states.queued then
    local inner = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
    should[keys.waiting()] = true
    should[keys.lane(lane.id)] = inner
    if request.walltime_s then should[keys.lane_walltimes(lane.id)] = tonumber(request.walltime_s) end
    for _, name in ipairs(lanes.pools(lane.component)) do
      local path = accounts.path(name, lane.component)
      if path[#path].fields.reviewing or redis.call('HEXISTS', keys.pool_unfinished(name), 'sync ' .. lane.id) == 1 then should[keys.pool_queue(name)] = 'either'
      elseif lanes.is_attached(path[#path], lane) then should[keys.pool_queue(name)] = queue_order.rank_score(path[#path], path[1], inner) end
    end
  elseif string.find(transitions, ' ' .. request.status .. '>', 1, true) then
    should[keys.leases()] = true
    if request.pool ~= '' then
      should[keys.pool_allocations(request.pool)] = tonumber(request.fence)
      if request.walltime_s then
        should[keys.pool_walltime_ends(request.pool)] = tonumber(request.granted_ms) + tonumber(request.walltime_s) * 1000
      end
    end
  else
    should[keys.ended()] = tonumber(request.ended_ms)
  end
  return should, maybe
end

local function anew(request, key)
  local runs = not request.task or (request.started_ms or '') ~= ''
  local seconds = key == keys.leases() and runs and request.lease_s or key == keys.waiting() and requests.poll_timeout_s(request)
  return seconds and clock.after(seconds) or const.EXACT
end

-- A request whose task is gone: who has begun goes on without, and of the others nobody will ever hear, so their time is up.
local function alone(request)
  if (request.started_ms or '') ~= '' then return redis.call('HDEL', keys.request(request.id), 'task') end
  redis.call('ZADD', request.status == states.queued and keys.waiting() or keys.leases(), amounts.format(clock.now), request.id)
end

-- A request of a task: the task knows it, and somebody will send what is to be sent. Its lease runs from when it has begun.
local function check_task(request)
  local task, status = request.task, request.status
  local of = redis.call('HGET', keys.task(task), 'request')
  local over = not string.find(transitions, ' ' .. status .. '>', 1, true)
  if of ~= request.id then
    if not over and audit_findings.add('task', task .. ' ' .. request.id, of, request.id) then alone(request) end
    return
  end
  local due = redis.call('ZSCORE', keys.outbox(), task) or redis.call('ZSCORE', keys.unstarted(), task)
    or redis.call('ZSCORE', keys.delayed(), task)
  if not due and (over or status ~= states.queued and (request.started_ms or '') == '') then
    if audit_findings.add('task', task .. ' ' .. status .. ' in the outbox', nil, 'there') then
      redis.call('ZADD', keys.outbox(), amounts.format(clock.now), task)
    end
  end
end

local function check(id)
  local request = requests.load(id)
  if not request then
    if audit_findings.add('request', id, nil, 'a request') then redis.call('ZREM', keys.requests(), id) end
    return
  end
  local lane = lanes.of(request)
  local should, maybe = belongs(request, lane)
  for _, key in ipairs(maybe) do
    local is, wanted = tonumber(redis.call('ZSCORE', key, id)), should[key]
    local right = wanted == 'either' or wanted == true and is or wanted == is
    if not right and audit_findings.add('request', id .. ' ' .. request.status .. ' in ' .. key, is, wanted) then
      if wanted then redis.call('ZADD', key, amounts.format(wanted == true and anew(request, key) or wanted), id)
      else redis.call('ZREM', key, id) end
    end
  end
  local cleared = request.victim_hold_pool
  if cleared and (request.status ~= states.queued or redis.call('HEXISTS', keys.pool_holds(cleared), id) == 0) then
    if audit_findings.add('hold', cleared .. ' ' .. id, 'noted', nil) then redis.call('HDEL', keys.request(id), 'victim_hold_pool') end
  end
  if request.task then check_task(request) end
  if request.status ~= states.queued then return end
  local listed = redis.call('SISMEMBER', keys.component_lanes(lane.component), lane.id) == 1
  for _, name in ipairs(lanes.pools(lane.component)) do
    local path = accounts.path(name, lane.component)
    local pool, able = path[#path], not eligibility.refusal(path, lane.units, lane.fixed)
    if not pool.fields.reviewing and (not listed or lanes.is_attached(pool, lane) ~= able) then
      if audit_findings.add('lane', name .. ' ' .. lane.id, lanes.is_attached(pool, lane), able) then
        redis.call('SADD', keys.component_lanes(lane.component), lane.id)
        rechecks.start(pool)
      end
    end
  end
end

local function counted(name, least)
  local is = tonumber(redis.call('HGET', keys.meta(), name)) or 0
  if is >= least then return end
  if audit_findings.add('counter', name, amounts.format(is), 'at least ' .. amounts.format(least)) then
    redis.call('HSET', keys.meta(), name, amounts.format(least))
  end
end

local ids = redis.call('ZRANGEBYSCORE', keys.requests(), '(' .. args.after, '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(args.count))
for i = 1, #ids, 2 do
  check(ids[i])
  counted('seq', tonumber(ids[i + 1]))
  counted('fence', tonumber(redis.call('HGET', keys.request(ids[i]), 'fence') or 0) or 0)
end
return reply.audited(audit_findings.list(), ids[#ids])
