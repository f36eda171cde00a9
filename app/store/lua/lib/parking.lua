-- Where each lane of a pool waits: on one constraint that it violates, so that only a rise of that one can help it.
-- @use amounts clock
-- @keys pool_parked pool_parks pool_needs pool_park pool_line

parking.NEW = 'new|pool|-'

-- constraint, need and since when (ms) the lane has been blocked by capacity; nil if the lane is not of this pool.
function parking.of(pool, id)
  local text = redis.call('HGET', keys.pool_parked(pool.name), id)
  if not text then return nil end
  return string.match(text, '^(%S+) (%S+) (%S+)$')
end

function parking.anybody(pool)
  return redis.call('EXISTS', keys.pool_parked(pool.name)) == 1
end

function parking.constraint(why)
  return why.kind .. '|' .. why.account .. '|' .. why.key
end

-- Whether a lane on this constraint is kept by capacity (and not by a limit or its fixed share).
function parking.by_capacity(constraint)
  return constraint == 'line' or constraint == parking.NEW or string.match(constraint, '^limit|pool|') or
    string.match(constraint, '^held|') or string.match(constraint, '^cleared|pool|')
end

local function lift(pool, id, constraint, need)
  if constraint == 'line' then return redis.call('ZREM', keys.pool_line(pool.name), id) end
  local park = keys.pool_park(pool.name, constraint, need)
  redis.call('ZREM', park, id)
  if redis.call('EXISTS', park) == 0 then redis.call('ZREM', keys.pool_needs(pool.name, constraint), need) end
  if redis.call('HINCRBY', keys.pool_parks(pool.name), constraint, -1) == 0 then
    redis.call('HDEL', keys.pool_parks(pool.name), constraint)
  end
end

-- Move a lane to a constraint; NEW is one that is always met, so that the next pass looks at it.
function parking.park(pool, id, constraint, need, place)
  local before, wanted, since = parking.of(pool, id)
  if not before or not (parking.by_capacity(before) and parking.by_capacity(constraint)) then since = amounts.whole(clock.now) end
  need = amounts.whole(need)
  if before and (before ~= constraint or wanted ~= need) then lift(pool, id, before, wanted) end
  if constraint == 'line' then
    redis.call('ZADD', keys.pool_line(pool.name), amounts.whole(place), id)
  else
    redis.call('ZADD', keys.pool_park(pool.name, constraint, need), amounts.whole(place), id)
    if before ~= constraint or wanted ~= need then
      redis.call('ZADD', keys.pool_needs(pool.name, constraint), need, need)
      redis.call('HINCRBY', keys.pool_parks(pool.name), constraint, 1)
    end
  end
  redis.call('HSET', keys.pool_parked(pool.name), id, constraint .. ' ' .. need .. ' ' .. since)
end

function parking.seat(pool, id, place)
  local constraint, need = parking.of(pool, id)
  if not constraint then return end
  local where = constraint == 'line' and keys.pool_line(pool.name) or keys.pool_park(pool.name, constraint, need)
  redis.call('ZADD', where, amounts.whole(place), id)
end

function parking.leave(pool, id)
  local constraint, need = parking.of(pool, id)
  if not constraint then return end
  lift(pool, id, constraint, need)
  redis.call('HDEL', keys.pool_parked(pool.name), id)
end

-- The constraints of a set (of all, if nil) that somebody is parked on.
function parking.constraints(pool, set)
  if not set then return redis.call('HKEYS', keys.pool_parks(pool.name)) end
  local asked, some = {}, {}
  for constraint in pairs(set) do asked[#asked + 1] = constraint end
  for first = 1, #asked, 1000 do  -- as many as unpack takes for sure
    local numbers = redis.call('HMGET', keys.pool_parks(pool.name), unpack(asked, first, math.min(#asked, first + 999)))
    for i, count in ipairs(numbers) do
      if count then some[#some + 1] = asked[first + i - 1] end
    end
  end
  return some
end

-- The first in order among those on a constraint that need no more than there is room.
function parking.first(pool, constraint, room)
  local best, at = nil, nil
  for _, need in ipairs(redis.call('ZRANGEBYSCORE', keys.pool_needs(pool.name, constraint), '-inf', amounts.whole(room))) do
    local head = redis.call('ZRANGE', keys.pool_park(pool.name, constraint, need), 0, 0, 'WITHSCORES')
    local place = tonumber(head[2])
    if not at or place < at then best, at = head[1], place end
  end
  return best, at
end
