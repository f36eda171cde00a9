-- All that decisions in a workspace go by but the requests, at one moment, so that it can be made again elsewhere: each key, its type,
-- and what is in it. What has ended is left out, and so are the stream, messages of tasks, answers kept for retries, and counts.
-- Of the requests, which were read before (`copied_requests`), those are told that something has happened to since the event `after`,
-- or that a hold may have changed without one; if these are many, or the stream reaches back no more, all have to be read anew.
-- @use amounts clock lanes request_copies
-- @keys component_pools component_lanes events group hold preemption_deadlines meta orphaned_lanes policy pool pool_groups pool_holds
-- @keys pool_in_share pool_lanes pool_victims pool_strict_line pool_parking_needs pool_parking pool_parked pool_parking_counts pool_policies pool_queue pool_run_times
-- @keys pool_satisfaction pool_lane_amounts pool_preemptions pool_unfinished pools unfinished
-- @args now after most
-- @reply copied now rows found
-- @reply moved

clock.start(args.now)
local last = args.after == '0-0' or redis.call('XRANGE', keys.events(), args.after, args.after)[1]
local since = redis.call('XRANGE', keys.events(), '(' .. args.after, '+', 'COUNT', tonumber(args.most) + 1)
if not last or #since > tonumber(args.most) then return reply.moved() end

local rows, taken = {}, {}
local READ = {
  hash = function(key) return redis.call('HGETALL', key) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
}

local function take(kind, ...)
  for _, key in ipairs({...}) do
    local has = not taken[key] and READ[kind](key)
    taken[key] = true
    if has and #has > 0 then rows[#rows + 1] = {key, kind, has} end
  end
end

local found, told = {}, {}
local function take_request(id)
  if not told[id] then found[#found + 1] = request_copies.read(id) end
  told[id] = true
end

for _, entry in ipairs(since) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'request' or entry[2][i] == 'by' then take_request(entry[2][i + 1]) end
  end
end

-- With fair share the needs of a constraint are the policies with somebody there, and each has needs of its own.
local function take_spot(pool, spot)
  take('zset', keys.pool_parking_needs(pool, spot))
  for _, need in ipairs(redis.call('ZRANGE', keys.pool_parking_needs(pool, spot), 0, -1)) do
    if string.find(need, '/', 1, true) then take_spot(pool, spot .. '@' .. need) else take('zset', keys.pool_parking(pool, spot, need)) end
  end
end

local function take_component(component)
  take('zset', keys.component_pools(component))
  take('set', keys.component_lanes(component))
end

local function take_pool(pool)
  take('hash', keys.pool(pool), keys.pool_victims(pool), keys.pool_parked(pool), keys.pool_parking_counts(pool),
    keys.pool_holds(pool), keys.pool_unfinished(pool))
  take('set', keys.pool_groups(pool), keys.pool_policies(pool), keys.pool_in_share(pool))
  take('zset', keys.pool_queue(pool), keys.pool_preemptions(pool), keys.pool_lanes(pool),
    keys.pool_satisfaction(pool), keys.pool_strict_line(pool))
  for _, group in ipairs(redis.call('SMEMBERS', keys.pool_groups(pool))) do take('hash', keys.group(pool, group)) end
  for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(pool))) do
    take('hash', keys.policy(pool, component), keys.pool_run_times(pool, component))
    take_component(component)
  end
  for _, id in ipairs(redis.call('HKEYS', keys.pool_holds(pool))) do
    take('hash', keys.hold(pool, id))
    take_request(id)
  end
  local leaving = redis.call('HGETALL', keys.pool_victims(pool))
  for i = 1, #leaving, 2 do
    if leaving[i + 1] == '-' then take_request(leaving[i]) end
  end
  for _, constraint in ipairs(redis.call('HKEYS', keys.pool_parking_counts(pool))) do take_spot(pool, constraint) end
  local seen = {}
  for _, id in ipairs(redis.call('HKEYS', keys.pool_parked(pool))) do
    local keyed = string.gsub(id, '=%d+', '')  -- there may be many lanes, and few that differ in more than amounts
    local lane = not seen[keyed] and lanes.open(id)
    seen[keyed] = true
    for _, key in ipairs(lane and lane.units.keys or {}) do take('zset', keys.pool_lane_amounts(pool, lane.component, lane.kind, key)) end
  end
end

take('hash', keys.meta(), keys.pools())
take('set', keys.unfinished(), keys.orphaned_lanes())
take('zset', keys.preemption_deadlines())
for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do take_pool(pool) end
for _, id in ipairs(redis.call('SMEMBERS', keys.orphaned_lanes())) do take_component(lanes.open(id).component) end
return reply.copied(amounts.format(clock.now), rows, found)
