-- Lanes: all that wait with one shape are decided as one, by their head; a pool refers to the lanes that may be granted in it.
-- @use amounts fair_share_order parking queue_order
-- @keys lane component_pools pool_lanes pool_in_share pool_lane_amounts pool_parked

local opened = {}

function lanes.name(component, fixed, resources)
  return component .. (fixed and '|f|' or '|p|') .. resources
end

function lanes.of(request)
  return lanes.open(lanes.name(request.component, request.preemptible == '0', request.resources))
end

function lanes.open(id)
  local lane = opened[id]
  if not lane then
    local component, kind, text = string.match(id, '^([^|]+)|([pf])|(.*)$')
    lane = {id = id, component = component, kind = kind, fixed = kind == 'f', units = amounts.decode(text)}
    opened[id] = lane
  end
  return lane
end

-- The first member and its inner number; nil when nobody is left.
function lanes.head(lane)
  local first = redis.call('ZRANGE', keys.lane(lane.id), 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

function lanes.pools(component)
  return redis.call('ZRANGE', keys.component_pools(component), 0, -1)
end

-- Rule 1 of the order: fits on every share key it asks, of which there must be one, into its policy's unused share.
function lanes.is_in_share(path, lane)
  if fair_share_order.applies(path[#path]) then return false end
  local policy, pool, asked = path[1], path[#path], false
  local taken = lane.fixed and policy.fixed or policy.used
  for _, key in ipairs(lane.units.keys) do
    if pool.reserving_accounts[key] then
      asked = true
      if lane.units.of[key] > (policy.reserved[key] or 0) - (taken[key] or 0) then return false end
    end
  end
  return asked
end

-- Put a lane where its head and its share say.
function lanes.reposition(path, lane)
  local policy, pool = path[1], path[#path]
  local _, inner = lanes.head(lane)
  local inshare = lanes.is_in_share(path, lane)
  local place = queue_order.stored_score(pool, policy, inner, inshare)
  redis.call(inshare and 'SADD' or 'SREM', keys.pool_in_share(pool.name), lane.id)
  redis.call('ZADD', keys.pool_lanes(pool.name), amounts.format(place), lane.id)
  parking.reposition(pool, lane.id, place)
  return place
end

-- Whether a pool refers to the lane.
function lanes.is_attached(pool, lane)
  return redis.call('HEXISTS', keys.pool_parked(pool.name), lane.id) == 1
end

-- Refer to a lane (or look at it afresh), parked where it was found to be blocked.
function lanes.attach(path, lane, constraint, need)
  local policy, pool = path[1], path[#path]
  for _, key in ipairs(lane.units.keys) do
    local share = keys.pool_lane_amounts(pool.name, lane.component, lane.kind, key)
    if (policy.reserved[key] or 0) > 0 then redis.call('ZADD', share, amounts.format(lane.units.of[key]), lane.id)
    else redis.call('ZREM', share, lane.id) end
  end
  fair_share_order.update(pool, policy)
  parking.park(pool, lane.id, constraint, need, lanes.reposition(path, lane))
end

function lanes.detach(pool, lane)
  for _, key in ipairs(lane.units.keys) do
    redis.call('ZREM', keys.pool_lane_amounts(pool.name, lane.component, lane.kind, key), lane.id)
  end
  redis.call('SREM', keys.pool_in_share(pool.name), lane.id)
  redis.call('ZREM', keys.pool_lanes(pool.name), lane.id)
  parking.remove(pool, lane.id)
end

-- A policy's use of an ask's keys has just moved: lanes that changed sides between share and borrowing get their new place.
function lanes.reposition_crossed(path, units, kind, column, sign)
  local policy, pool = path[1], path[#path]
  for _, key in ipairs(units.keys) do
    local reserved = policy.reserved[key] or 0
    if reserved > 0 then
      local after = reserved - (policy[column][key] or 0)
      local before = after + sign * units.of[key]
      local crossed = redis.call('ZRANGEBYSCORE', keys.pool_lane_amounts(pool.name, policy.component, kind, key),
        '(' .. amounts.format(math.min(before, after)), amounts.format(math.max(before, after)))
      for _, id in ipairs(crossed) do lanes.reposition(path, lanes.open(id)) end
    end
  end
end
