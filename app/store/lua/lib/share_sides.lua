-- The side of each lane of a policy with a reserved share, for each key: the lane's amount fits the unused share, or exceeds
-- it. A change of use moves the boundary, and lanes on the wrong side of it have crossed.
-- @use amounts
-- @writes pool_lane_amounts

local FITS, EXCEEDS = 'fits', 'exceeds'

local function unused_units(policy, kind, key)
  return (policy.reserved[key] or 0) - (policy[kind == 'f' and 'fixed' or 'used'][key] or 0)
end

-- Return the side of a lane for a key; nil if the policy has none reserved.
local function side_of(policy, lane, key)
  if (policy.reserved[key] or 0) == 0 then return nil end
  return lane.units.of[key] <= unused_units(policy, lane.kind, key) and FITS or EXCEEDS
end

-- Store the side of a lane, for each key.
function share_sides.write(path, lane)
  local policy, pool = path[1], path[#path]
  for _, key in ipairs(lane.units.keys) do
    local lane_side = side_of(policy, lane, key)
    for _, side in ipairs({FITS, EXCEEDS}) do
      local lane_amounts = keys.pool_lane_amounts(pool.name, side, lane.component, lane.kind, key)
      if side == lane_side then redis.call('ZADD', lane_amounts, amounts.format(lane.units.of[key]), lane.id)
      else redis.call('ZREM', lane_amounts, lane.id) end
    end
  end
end

-- True if a lane is stored on its present side of every key, and on no other side.
function share_sides.is_right(path, lane)
  local policy, pool = path[1], path[#path]
  for _, key in ipairs(lane.units.keys) do
    local lane_side = side_of(policy, lane, key)
    for _, side in ipairs({FITS, EXCEEDS}) do
      local stored = redis.call('ZSCORE', keys.pool_lane_amounts(pool.name, side, lane.component, lane.kind, key), lane.id)
      if (side == lane_side) ~= (stored and true or false) then return false end
    end
  end
  return true
end

function share_sides.remove(pool, lane)
  for _, key in ipairs(lane.units.keys) do
    for _, side in ipairs({FITS, EXCEEDS}) do
      redis.call('ZREM', keys.pool_lane_amounts(pool.name, side, lane.component, lane.kind, key), lane.id)
    end
  end
end

-- Return a lane of the policy that has crossed and was not moved, with its amount and both sides; nil if there is none.
function share_sides.next_crossed(path, kind, key)
  local policy, pool = path[1], path[#path]
  local unused = amounts.format(unused_units(policy, kind, key))
  for _, way in ipairs({{FITS, EXCEEDS, '(' .. unused, '+inf'}, {EXCEEDS, FITS, '-inf', unused}}) do
    local from, to, least, most = unpack(way)
    local from_key = keys.pool_lane_amounts(pool.name, from, policy.component, kind, key)
    local row = redis.call('ZRANGEBYSCORE', from_key, least, most, 'WITHSCORES', 'LIMIT', 0, 1)
    if row[1] then return {id = row[1], amount = row[2], from = from, to = to} end
  end
end

-- Move a lane that has crossed.
function share_sides.move(path, kind, key, crossed)
  local pool, component = path[#path], path[1].component
  redis.call('ZREM', keys.pool_lane_amounts(pool.name, crossed.from, component, kind, key), crossed.id)
  redis.call('ZADD', keys.pool_lane_amounts(pool.name, crossed.to, component, kind, key), crossed.amount, crossed.id)
end
