-- Read everything that decisions in a workspace depend on, except the requests, at one moment: each key, its type, its value.
-- Ended requests, the event stream, messages of tasks, remembered replies and counters are left out. The requests were read
-- before (`copy_requests`). This command returns those with an event since the event `after`, and those whose hold may have
-- changed without an event. If these are too many, or the stream no longer reaches back to `after`, the reply is `moved` and the
-- copy starts again.
-- @use amounts clock lanes request_copies
-- @reads component_lanes component_pools events group hold meta orphaned_lanes policy pool pool_blocked_since pool_groups pool_holds pool_parking_tree pool_policy_lanes pool_policy_queue pool_queue_syncs
-- @reads pool_in_share pool_lane_amounts pool_lanes pool_parked pool_parking pool_parking_counts pool_parking_needs
-- @reads pool_policies pool_preemptions pool_queue pool_run_times pool_satisfaction pool_strict_line pool_unfinished
-- @reads pool_victims pools preemption_deadlines unfinished
-- @args now after most
-- @reply copied now rows found
-- @reply moved

clock.start(args.now)
local after_exists = args.after == '0-0' or redis.call('XRANGE', keys.events(), args.after, args.after)[1]
local new_events = redis.call('XRANGE', keys.events(), '(' .. args.after, '+', 'COUNT', tonumber(args.most) + 1)
if not after_exists or #new_events > tonumber(args.most) then return reply.moved() end

local rows, copied_keys = {}, {}
local READ = {
  hash = function(key) return redis.call('HGETALL', key) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
}

local function copy(kind, ...)
  for _, key in ipairs({...}) do
    local value = not copied_keys[key] and READ[kind](key)
    copied_keys[key] = true
    if value and #value > 0 then rows[#rows + 1] = {key, kind, value} end
  end
end

local requests, copied_requests = {}, {}
local function copy_request(id)
  if not copied_requests[id] then requests[#requests + 1] = request_copies.read(id) end
  copied_requests[id] = true
end

for _, entry in ipairs(new_events) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'request' or entry[2][i] == 'by' then copy_request(entry[2][i + 1]) end
  end
end

-- Copy a slot of one need, and the nodes of its tree.
local function copy_slot(pool, slot, need)
  if slot == 'line' then return end
  local digits = string.format('%x', tonumber(need))
  copy('zset', keys.pool_parking(pool, slot, need), keys.pool_parking_tree(pool, slot, '.'))
  for depth = 0, #digits - 1 do copy('zset', keys.pool_parking_tree(pool, slot, #digits .. '.' .. string.sub(digits, 1, depth))) end
end

local function copy_component(component)
  copy('zset', keys.component_pools(component))
  copy('zset', keys.component_lanes(component))
end

local function copy_pool(pool)
  copy('hash', keys.pool(pool), keys.pool_victims(pool), keys.pool_parked(pool), keys.pool_parking_counts(pool),
    keys.pool_holds(pool), keys.pool_unfinished(pool))
  copy('set', keys.pool_groups(pool), keys.pool_policies(pool), keys.pool_in_share(pool))
  copy('zset', keys.pool_queue(pool), keys.pool_preemptions(pool), keys.pool_lanes(pool),
    keys.pool_satisfaction(pool), keys.pool_strict_line(pool), keys.pool_blocked_since(pool), keys.pool_queue_syncs(pool))
  for _, group in ipairs(redis.call('SMEMBERS', keys.pool_groups(pool))) do copy('hash', keys.group(pool, group)) end
  for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(pool))) do
    copy('hash', keys.policy(pool, component), keys.pool_run_times(pool, component))
    copy('zset', keys.pool_policy_queue(pool, component), keys.pool_policy_lanes(pool, component))
    copy_component(component)
  end
  for _, id in ipairs(redis.call('HKEYS', keys.pool_holds(pool))) do
    copy('hash', keys.hold(pool, id))
    copy_request(id)
  end
  local victims = redis.call('HGETALL', keys.pool_victims(pool))
  for i = 1, #victims, 2 do
    if victims[i + 1] == '-' then copy_request(victims[i]) end
  end
  for _, constraint in ipairs(redis.call('HKEYS', keys.pool_parking_counts(pool))) do copy('zset', keys.pool_parking_needs(pool, constraint)) end
  local copied_shapes, parked = {}, redis.call('HGETALL', keys.pool_parked(pool))
  for i = 1, #parked, 2 do
    local id, slot, need = parked[i], string.match(parked[i + 1], '^(%S+) (%S+)')
    copy_slot(pool, slot, need)
    copy_slot(pool, 'backfill|' .. slot, need)
    local shape = string.gsub(id, '=%d+', '')  -- there may be many lanes, and few that differ in more than amounts
    local lane = not copied_shapes[shape] and lanes.open(id)
    copied_shapes[shape] = true
    for _, key in ipairs(lane and lane.units.keys or {}) do
      copy('zset', keys.pool_lane_amounts(pool, 'fits', lane.component, lane.kind, key), keys.pool_lane_amounts(pool, 'exceeds', lane.component, lane.kind, key))
    end
  end
end

copy('hash', keys.meta(), keys.pools())
copy('set', keys.unfinished())
copy('zset', keys.preemption_deadlines(), keys.orphaned_lanes())
for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do copy_pool(pool) end
for _, id in ipairs(redis.call('ZRANGE', keys.orphaned_lanes(), 0, -1)) do copy_component(lanes.open(id).component) end
return reply.copied(amounts.format(clock.now), rows, requests)
