-- Where each lane of a pool waits: on one constraint that it violates, so that only a rise of that one can help it.
-- With fair share those of each policy stand apart, so that the least satisfied is found first though places move all the time.
-- @use amounts clock fair_share_order queue_order
-- @keys pool_parked pool_parking_counts pool_parking_needs pool_parking pool_strict_line

parking.NEW = 'new|pool|-'

local function parked(pool, id)
  local text = redis.call('HGET', keys.pool_parked(pool.name), id)
  if not text then return nil end
  return string.match(text, '^(%S+) (%S+) (%S+)$')
end

-- A spot is a constraint, and where the lanes of each policy stand apart also whose it is.
local function split(spot) return string.match(spot, '^([^@]+)@?(.*)$') end

-- constraint, need, since when (ms) the lane has been blocked by capacity, spot; nil if the lane is not of this pool.
function parking.find(pool, id)
  local spot, need, since = parked(pool, id)
  if spot then return (split(spot)), need, since, spot end
end

function parking.any(pool)
  return redis.call('EXISTS', keys.pool_parked(pool.name)) == 1
end

function parking.constraint_of(why)
  return why.kind .. '|' .. why.account .. '|' .. why.key
end

-- Whether a lane on this constraint is kept by capacity (and not by a limit or its fixed share).
function parking.is_capacity(constraint)
  return constraint == 'line' or constraint == parking.NEW or string.match(constraint, '^limit|pool|') or
    string.match(constraint, '^patience_held|') or string.match(constraint, '^victim_held|pool|')
end

-- The smallest need of a policy's lanes on a constraint has changed, or there is nobody any more.
local function note_least(pool, constraint, component)
  local needs = redis.call('ZRANGE', keys.pool_parking_needs(pool.name, constraint .. '@' .. component), 0, 0, 'WITHSCORES')
  if needs[1] then redis.call('ZADD', keys.pool_parking_needs(pool.name, constraint), needs[2], component)
  else redis.call('ZREM', keys.pool_parking_needs(pool.name, constraint), component) end
end

local function lift(pool, id, spot, need)
  if spot == 'line' then return redis.call('ZREM', keys.pool_strict_line(pool.name), id) end
  local constraint, component = split(spot)
  local park = keys.pool_parking(pool.name, spot, need)
  redis.call('ZREM', park, id)
  if redis.call('EXISTS', park) == 0 then
    redis.call('ZREM', keys.pool_parking_needs(pool.name, spot), need)
    if component ~= '' then note_least(pool, constraint, component) end
  end
  if redis.call('HINCRBY', keys.pool_parking_counts(pool.name), constraint, -1) == 0 then
    redis.call('HDEL', keys.pool_parking_counts(pool.name), constraint)
  end
end

-- Move a lane to a constraint; NEW is one that is always met, so that the next pass looks at it.
function parking.park(pool, id, constraint, need, place)
  local before, wanted, since, was = parking.find(pool, id)
  if not before or not (parking.is_capacity(before) and parking.is_capacity(constraint)) then since = amounts.format(clock.now) end
  local component = fair_share_order.applies(pool) and string.match(id, '^[^|]+')
  local spot = component and constraint .. '@' .. component or constraint
  need, place = amounts.format(need), amounts.format(queue_order.without_tier(pool, place))
  local moves = was ~= spot or wanted ~= need
  if before and moves then lift(pool, id, was, wanted) end
  if spot == 'line' then
    redis.call('ZADD', keys.pool_strict_line(pool.name), place, id)
  else
    redis.call('ZADD', keys.pool_parking(pool.name, spot, need), place, id)
    if moves then
      redis.call('ZADD', keys.pool_parking_needs(pool.name, spot), need, need)
      redis.call('HINCRBY', keys.pool_parking_counts(pool.name), constraint, 1)
      if component then note_least(pool, constraint, component) end
    end
  end
  redis.call('HSET', keys.pool_parked(pool.name), id, spot .. ' ' .. need .. ' ' .. since)
end

-- Its head, or its share, has changed: where it stands it has another place.
function parking.reposition(pool, id, place)
  local spot, need = parked(pool, id)
  if not spot then return end
  local where = spot == 'line' and keys.pool_strict_line(pool.name) or keys.pool_parking(pool.name, spot, need)
  redis.call('ZADD', where, amounts.format(queue_order.without_tier(pool, place)), id)
end

function parking.remove(pool, id)
  local spot, need = parked(pool, id)
  if not spot then return end
  lift(pool, id, spot, need)
  redis.call('HDEL', keys.pool_parked(pool.name), id)
end

-- The constraints of a set (of all, if nil) that somebody is parked on.
function parking.occupied_constraints(pool, set)
  if not set then return redis.call('HKEYS', keys.pool_parking_counts(pool.name)) end
  local asked, some = {}, {}
  for constraint in pairs(set) do asked[#asked + 1] = constraint end
  for first = 1, #asked, 1000 do  -- as many as unpack takes for sure
    local numbers = redis.call('HMGET', keys.pool_parking_counts(pool.name), unpack(asked, first, math.min(#asked, first + 999)))
    for i, count in ipairs(numbers) do
      if count then some[#some + 1] = asked[first + i - 1] end
    end
  end
  return some
end
