-- Changes of a pool that have no event: a stored checkpoint, a published share, the end of a victim hold, a patience hold. With
-- these changes and the events, a reader finds the rows that changed since it read them. A member is `request:<id>` of an
-- allocation, or the id of a group or a policy.
-- @use amounts
-- @writes pool_changes

local MOST = 1000  -- the changes that are kept; a reader that missed more reads the whole pool again

-- Return the number of the newest change; 0 before the first.
function pool_changes.last(pool_name)
  return tonumber(redis.call('ZRANGE', keys.pool_changes(pool_name), -1, -1, 'WITHSCORES')[2] or 0)
end

-- Give each of these changes its own number.
function pool_changes.add(pool_name, members)
  local key, number = keys.pool_changes(pool_name), pool_changes.last(pool_name)
  for i, member in ipairs(members) do redis.call('ZADD', key, amounts.format(number + i), member) end
  local excess = redis.call('ZCARD', key) - MOST
  for first = 0, excess - 1, MOST do
    redis.call('ZREM', key, unpack(redis.call('ZRANGE', key, 0, math.min(excess - first, MOST) - 1)))
  end
end

-- Return up to `most` members that changed after a number, each followed by the number of its change; nil if some are no longer
-- kept.
function pool_changes.list(pool_name, after, most)
  local key = keys.pool_changes(pool_name)
  local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if after > pool_changes.last(pool_name) then return nil end  -- the pool was deleted and created again
  if oldest[1] and tonumber(oldest[2]) > after + 1 and redis.call('ZCARD', key) >= MOST then return nil end
  return redis.call('ZRANGEBYSCORE', key, '(' .. amounts.format(after), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
end
