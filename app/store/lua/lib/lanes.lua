-- Lanes: all waiters of one shape are judged together, by their head. A pool refers to the lanes that it may grant. A lane is
-- named by its shape: component, kind (fixed or preemptible), amounts, and a tail for other parts of the shape (`|pools=a,b`:
-- only these pools are eligible).
-- @use amounts fair_share_order parking queue_order share_sides
-- @reads component_lanes component_pools lane meta pool_parked
-- @writes pool_in_share pool_lanes pool_policy_lanes

local cache = {}

function lanes.name(component, fixed, resources, tail)
  return component .. (fixed and '|f|' or '|p|') .. resources .. ((tail or '') ~= '' and '|' .. tail or '')
end

function lanes.of(request)
  return lanes.open(lanes.name(request.component, request.preemptible == '0', request.resources, request.shape))
end

-- Return the pools that the tail of a shape names, as a set in their order; nil if it names none.
local function named_pools(tail)
  local text, set = string.match(tail, '|pools=([^|]*)'), {list = {}, has = {}}
  for name in string.gmatch(text or '', '[^,]+') do set.list[#set.list + 1], set.has[name] = name, true end
  return text and set or nil
end

function lanes.open(id)
  local lane = cache[id]
  if not lane then
    local component, kind, text, tail = string.match(id, '^([^|]+)|([pf])|([^|]*)(.*)$')
    lane = {id = id, component = component, kind = kind, fixed = kind == 'f', units = amounts.decode(text), named_pools = named_pools(tail)}
    cache[id] = lane
  end
  return lane
end

-- Return the first waiter of a lane and its lane score; nil if the lane is empty.
function lanes.head(lane)
  local first = redis.call('ZRANGE', keys.lane(lane.id), 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

-- True if the lane names no pools, or this one.
function lanes.allows(lane, pool_name) return not lane.named_pools or lane.named_pools.has[pool_name] == true end

-- Return all pools in which the component of a lane has a policy, the preferred first.
function lanes.component_pools(lane) return redis.call('ZRANGE', keys.component_pools(lane.component), 0, -1) end

-- Return the pools of a list that the lane allows.
function lanes.allowed(lane, names)
  if not lane.named_pools then return names end
  local allowed = {}
  for _, name in ipairs(names) do
    if lanes.allows(lane, name) then allowed[#allowed + 1] = name end
  end
  return allowed
end

-- Return the pools in which the component of a lane has a policy and which the lane allows, the preferred first.
function lanes.pools(lane) return lanes.allowed(lane, lanes.component_pools(lane)) end

-- True if requests of the lane are granted outside of any pool: the component has no policy, and the request names no pools.
function lanes.is_unmanaged(lane, pools)
  return #pools == 0 and not lane.named_pools and redis.call('HGET', keys.meta(), 'unmanaged') == 'allow'
end

-- True if requests of a component wait.
function lanes.has_waiters(component) return redis.call('EXISTS', keys.component_lanes(component)) == 1 end

-- True if the lane is in share: it needs a share key, and on every share key it fits the unused share of its policy.
function lanes.is_in_share(path, lane)
  if fair_share_order.applies(path[#path]) then return false end
  local policy, pool, needs_share_key = path[1], path[#path], false
  local used = lane.fixed and policy.fixed or policy.used
  for _, key in ipairs(lane.units.keys) do
    if pool.reserving_accounts[key] then
      needs_share_key = true
      if lane.units.of[key] > (policy.reserved[key] or 0) - (used[key] or 0) then return false end
    end
  end
  return needs_share_key
end

-- Store the score of a lane after its head or its in-share flag changed.
function lanes.reposition(path, lane)
  local policy, pool = path[1], path[#path]
  local _, lane_score = lanes.head(lane)
  local in_share = lanes.is_in_share(path, lane)
  local score = queue_order.stored_score(pool, policy, lane_score, in_share)
  redis.call(in_share and 'SADD' or 'SREM', keys.pool_in_share(pool.name), lane.id)
  redis.call('ZADD', keys.pool_lanes(pool.name), amounts.format(score), lane.id)
  if fair_share_order.applies(pool) then redis.call('ZADD', keys.pool_policy_lanes(pool.name, lane.component), amounts.format(score), lane.id) end
  parking.reposition(pool, lane.id, score)
  return score
end

-- True if the pool refers to the lane.
function lanes.is_attached(pool, lane)
  return redis.call('HEXISTS', keys.pool_parked(pool.name), lane.id) == 1
end

-- True if the pool refers to any lane: it has waiters.
function lanes.any_attached(pool)
  return redis.call('EXISTS', keys.pool_parked(pool.name)) == 1
end

-- Attach a lane to a pool, or judge an attached lane again. The lane is parked on the constraint that blocks it.
function lanes.attach(path, lane, constraint, need)
  local policy, pool = path[1], path[#path]
  share_sides.write(path, lane)
  fair_share_order.update(pool, policy)
  if not fair_share_order.applies(pool) then redis.call('ZREM', keys.pool_policy_lanes(pool.name, lane.component), lane.id) end
  parking.park(pool, lane.id, constraint, need, lanes.reposition(path, lane))
end

function lanes.detach(pool, lane)
  share_sides.remove(pool, lane)
  redis.call('SREM', keys.pool_in_share(pool.name), lane.id)
  redis.call('ZREM', keys.pool_lanes(pool.name), lane.id)
  redis.call('ZREM', keys.pool_policy_lanes(pool.name, lane.component), lane.id)
  parking.remove(pool, lane.id)
end
