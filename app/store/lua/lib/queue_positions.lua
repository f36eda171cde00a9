-- The position of a waiter in the queue of a pool: lanes in share count before lanes that borrow; with fair share lower tiers
-- first. If very many lanes are in share, only the first of them count as such, and the position is a lower bound.
-- @use accounts amounts fair_share_order lanes queue_order
-- @reads lane pool_in_share pool_lanes pool_policy_queue pool_queue

local COUNTED = 64

local function range_bound(number, exclusive)
  return (exclusive and '(' or '') .. amounts.format(number)
end

-- Count the waiters in share with a rank score from `low` to below `high`.
local function count_in_share(pool, ids, low, high)
  local count = 0
  for _, id in ipairs(ids) do
    local policy = accounts.policy(pool.name, lanes.open(id).component)
    count = count + redis.call('ZCOUNT', keys.lane(id), range_bound(queue_order.lane_score_from(pool, policy, low)),
      range_bound(queue_order.lane_score_from(pool, policy, high), true))
  end
  return count
end

-- Count the waiters before a waiter (fair share): all of lower tiers, and those of the same tier with a higher class or age.
local function find_by_tier(pool, lane, score)
  local own_tier, before_count = fair_share_order.tier(pool, lane.component), 0
  for _, row in ipairs(fair_share_order.policies_by_tier(pool)) do
    local queued = keys.pool_policy_queue(pool.name, row.component)
    if row.tier < own_tier then before_count = before_count + redis.call('ZCARD', queued)
    elseif row.tier == own_tier then before_count = before_count + redis.call('ZCOUNT', queued, '-inf', range_bound(score, true)) end
  end
  return 1 + before_count
end

-- Return the lanes in share that count one by one: the first in queue order.
local function lanes_in_share(pool)
  local ids = {}
  if redis.call('SCARD', keys.pool_in_share(pool.name)) <= COUNTED then return redis.call('SMEMBERS', keys.pool_in_share(pool.name)) end
  for _, id in ipairs(redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, COUNTED - 1)) do
    if redis.call('SISMEMBER', keys.pool_in_share(pool.name), id) == 1 then ids[#ids + 1] = id end
  end
  return ids
end

-- Return the position, 1 for the first; nil if the waiter is not in this queue.
function queue_positions.find(pool, lane, id)
  local queue_key = keys.pool_queue(pool.name)
  local score = tonumber(redis.call('ZSCORE', queue_key, id))
  if not score then return nil end
  if fair_share_order.applies(pool) then return find_by_tier(pool, lane, score) end
  local ids = lanes_in_share(pool)
  local in_share = redis.call('SISMEMBER', keys.pool_in_share(pool.name), lane.id) == 1
  local low, high = 0, const.RANK_COUNT * const.MAX_SUBMISSIONS
  local before_count = 0
  if pool.fields.order == 'priority_first' then
    low = math.floor(score / const.MAX_SUBMISSIONS) * const.MAX_SUBMISSIONS
    high = low + const.MAX_SUBMISSIONS
    before_count = redis.call('ZCOUNT', queue_key, '-inf', range_bound(low, true))
  end
  if in_share then return 1 + before_count + count_in_share(pool, ids, low, score) end
  local borrowers = redis.call('ZCOUNT', queue_key, range_bound(low), range_bound(score, true)) - count_in_share(pool, ids, low, score)
  return 1 + before_count + count_in_share(pool, ids, low, high) + borrowers
end

-- Return the positions of a request in the queues of its pools, pool and position in turn; none unless it is queued.
function queue_positions.of_request(request)
  local positions = {}
  if request.status ~= states.queued then return positions end
  local lane = lanes.of(request)
  for _, name in ipairs(lanes.pools(lane)) do
    local position = queue_positions.find(accounts.pool(name), lane, request.id)
    if position then
      positions[#positions + 1] = name
      positions[#positions + 1] = amounts.format(position)
    end
  end
  return positions
end
