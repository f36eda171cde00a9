-- Where somebody stands in a pool's queue, rule 1 included: those in share before those who must borrow.
-- @use accounts amounts lanes order
-- @keys lane pool_queue pool_inshare

local function bound(number, open)
  return (open and '(' or '') .. amounts.whole(number)
end

-- Waiters in share that score from `low` to below `high`.
local function inshare(pool, ids, low, high)
  local count = 0
  for _, id in ipairs(ids) do
    local policy = accounts.policy(pool.name, lanes.open(id).component)
    count = count + redis.call('ZCOUNT', keys.lane(id), bound(order.inner_from(pool, policy, low)),
      bound(order.inner_from(pool, policy, high), true))
  end
  return count
end

-- 1 for the first; nil for who does not stand in this queue.
function positions.of(pool, lane, id)
  local queued = keys.pool_queue(pool.name)
  local score = tonumber(redis.call('ZSCORE', queued, id))
  if not score then return nil end
  local ids = redis.call('SMEMBERS', keys.pool_inshare(pool.name))
  local shares = redis.call('SISMEMBER', keys.pool_inshare(pool.name), lane.id) == 1
  local low, high = 0, const.RANKS * const.AGES
  local before = 0
  if pool.is.order == 'priority_first' then
    low = math.floor(score / const.AGES) * const.AGES
    high = low + const.AGES
    before = redis.call('ZCOUNT', queued, '-inf', bound(low, true))
  end
  if shares then return 1 + before + inshare(pool, ids, low, score) end
  local borrowers = redis.call('ZCOUNT', queued, bound(low), bound(score, true)) - inshare(pool, ids, low, score)
  return 1 + before + inshare(pool, ids, low, high) + borrowers
end
