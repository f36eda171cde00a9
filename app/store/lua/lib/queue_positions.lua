-- Where somebody stands in a pool's queue, rule 1 included: those in share before those who must borrow, or with fair share those
-- of less satisfied policies before those of others.
-- @use accounts amounts fair_share_order lanes queue_order
-- @keys lane pool_queue pool_in_share pool_lanes

local function bound(number, open)
  return (open and '(' or '') .. amounts.format(number)
end

-- Waiters in share that score from `low` to below `high`.
local function inshare(pool, ids, low, high)
  local count = 0
  for _, id in ipairs(ids) do
    local policy = accounts.policy(pool.name, lanes.open(id).component)
    count = count + redis.call('ZCOUNT', keys.lane(id), bound(queue_order.lane_score_from(pool, policy, low)),
      bound(queue_order.lane_score_from(pool, policy, high), true))
  end
  return count
end

-- With fair share: all of lower tiers, and of the same tier those of a higher class or age.
local function fairly(pool, lane, score)
  local tier, tiers, before = fair_share_order.tier(pool, lane.component), {}, 0
  for _, id in ipairs(redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1)) do
    local component = lanes.open(id).component
    tiers[component] = tiers[component] or fair_share_order.tier(pool, component)
    if tiers[component] < tier then before = before + redis.call('ZCARD', keys.lane(id))
    elseif tiers[component] == tier then before = before + redis.call('ZCOUNT', keys.lane(id), '-inf', bound(score, true)) end
  end
  return 1 + before
end

-- 1 for the first; nil for who does not stand in this queue.
function queue_positions.find(pool, lane, id)
  local queued = keys.pool_queue(pool.name)
  local score = tonumber(redis.call('ZSCORE', queued, id))
  if not score then return nil end
  if fair_share_order.applies(pool) then return fairly(pool, lane, score) end
  local ids = redis.call('SMEMBERS', keys.pool_in_share(pool.name))
  local shares = redis.call('SISMEMBER', keys.pool_in_share(pool.name), lane.id) == 1
  local low, high = 0, const.RANKS * const.AGES
  local before = 0
  if pool.fields.order == 'priority_first' then
    low = math.floor(score / const.AGES) * const.AGES
    high = low + const.AGES
    before = redis.call('ZCOUNT', queued, '-inf', bound(low, true))
  end
  if shares then return 1 + before + inshare(pool, ids, low, score) end
  local borrowers = redis.call('ZCOUNT', queued, bound(low), bound(score, true)) - inshare(pool, ids, low, score)
  return 1 + before + inshare(pool, ids, low, high) + borrowers
end
