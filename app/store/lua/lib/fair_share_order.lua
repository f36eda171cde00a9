-- Fair share: the satisfaction ratio of each policy, by its published share and its present use; the lowest is served first.
-- Policies with the same ratio are one tier of the queue. A queue score is the tier, then class, then age.
-- @use amounts dirty_pools
-- @reads pool
-- @writes pool_satisfaction

local BILLION = 1e9
local NOISE = 1000  -- a share is published in 10^-12 of the pool; a smaller difference is rounding
local TIERS = 8191

function fair_share_order.applies(pool) return pool.fields.discipline == 'fair_share' end

-- Return the ratio of a policy without a published share (it had no demand): its largest part of the pool, by its weight.
local function ratio_without_share(pool, policy)
  local largest_fraction = 0
  for key, capacity in pairs(pool.limit) do largest_fraction = math.max(largest_fraction, (policy.used[key] or 0) / capacity) end
  return largest_fraction / tonumber(policy.fields.weight)
end

-- Return the satisfaction ratio of a policy, by the first case that applies. 1. The policy has no share: infinite. 2. It uses
-- more than its share of a key: the largest use divided by share. 3. Its demand exceeds its share of some keys: the largest of
-- these keys (0 if their share is 0). 4. Else the smallest of all keys.
local function ratio(pool, policy)
  if next(policy.fair_share) == nil then return ratio_without_share(pool, policy) end
  local over_ratio, short_ratio, least_ratio = nil, nil, nil
  for key, share in pairs(policy.fair_share) do
    local capacity = pool.limit[key]
    local used = capacity and (policy.used[key] or 0) / capacity * const.SHARE_UNITS or 0
    local key_ratio = share > NOISE and used / share
    if key_ratio then least_ratio = math.min(least_ratio or key_ratio, key_ratio) end
    if not policy.demand_met[key] then short_ratio = math.max(short_ratio or 0, key_ratio or 0) end
    if used > share + NOISE then over_ratio = math.max(over_ratio or 0, share > 0 and used / share or const.MAX_AMOUNT) end
  end
  if not least_ratio then return const.MAX_AMOUNT end
  return over_ratio or short_ratio or least_ratio
end

local function score_of(pool, policy)
  return amounts.format(math.min(const.MAX_AMOUNT, math.floor(ratio(pool, policy) * BILLION)))
end

-- Return the stored score of a policy and the current one; nil and nil under other disciplines.
function fair_share_order.scores(pool, policy)
  if not fair_share_order.applies(pool) then return nil, nil end
  local stored = redis.call('ZSCORE', keys.pool_satisfaction(pool.name), policy.component)
  return stored and amounts.format(tonumber(stored)), score_of(pool, policy)
end

-- Store the score of a policy after its use or its published share changed.
function fair_share_order.update(pool, policy)
  if not fair_share_order.applies(pool) then return end
  local score = score_of(pool, policy)
  local changed = redis.call('ZADD', keys.pool_satisfaction(pool.name), 'CH', score, policy.component)
  local may_change_head = pool.fields.patience or pool.fields.queueing == 'strict'  -- another waiter may be first now
  if changed == 1 and may_change_head and not pool.fields.unsettled then dirty_pools.mark(pool) end  -- the grant loop examines an unsettled pool anyway
end

-- Return the stored score of a policy.
function fair_share_order.score(pool, component)
  return amounts.format(tonumber(redis.call('ZSCORE', keys.pool_satisfaction(pool.name), component) or 0))
end

-- Return how many policies have a lower score, at most TIERS.
function fair_share_order.tier_of_score(pool, score)
  return math.min(TIERS, redis.call('ZCOUNT', keys.pool_satisfaction(pool.name), '-inf', '(' .. score))
end

-- Return how many policies have a lower score than this policy.
function fair_share_order.tier(pool, component) return fair_share_order.tier_of_score(pool, fair_share_order.score(pool, component)) end

-- Return the components of a list that have the lowest score, and their tier.
function fair_share_order.least_satisfied(pool, components)
  local lowest, least_policies = nil, {}
  for first = 1, #components, 1000 do  -- unpack fails on a list that is too long
    local scores = redis.call('ZMSCORE', keys.pool_satisfaction(pool.name), unpack(components, first, math.min(#components, first + 999)))
    for i, score in ipairs(scores) do
      local stored = tonumber(score or 0)
      if not lowest or stored < lowest then lowest, least_policies = stored, {} end
      if stored == lowest then least_policies[#least_policies + 1] = components[first + i - 1] end
    end
  end
  return least_policies, fair_share_order.tier(pool, least_policies[1])
end

-- Return the lowest score among the policies that `fits` selects; nil if it selects none.
function fair_share_order.lowest_score(pool, fits)
  for first = 0, math.huge, 32 do
    local page = redis.call('ZRANGE', keys.pool_satisfaction(pool.name), first, first + 31, 'WITHSCORES')
    if #page == 0 then return nil end
    local components, scores = {}, {}
    for i = 1, #page, 2 do components[#components + 1], scores[page[i]] = page[i], amounts.format(tonumber(page[i + 1])) end
    local first_fitting = fits(components)[1]
    if first_fitting then return scores[first_fitting] end
  end
end

-- Return the policies with exactly this score.
function fair_share_order.policies_at(pool, score) return redis.call('ZRANGEBYSCORE', keys.pool_satisfaction(pool.name), score, score) end

-- Return all policies with their tiers, the least satisfied first.
function fair_share_order.policies_by_tier(pool)
  local rows, tier, last_score = {}, 0, nil
  local raw = redis.call('ZRANGE', keys.pool_satisfaction(pool.name), 0, -1, 'WITHSCORES')
  for i = 1, #raw, 2 do
    if raw[i + 1] ~= last_score then tier, last_score = math.min(TIERS, #rows), raw[i + 1] end
    rows[#rows + 1] = {component = raw[i], tier = tier}
  end
  return rows
end

-- Return the field `watched` of a pool after its rules changed, for the next pass: `1`, or `anew` if its stored starvation
-- states no longer apply. Under other disciplines the stored scores are deleted.
function fair_share_order.watch_state(name)
  local discipline, watched = unpack(redis.call('HMGET', keys.pool(name), 'discipline', 'watched'))
  if discipline == 'fair_share' then return watched == 'anew' and 'anew' or '1' end
  redis.call('DEL', keys.pool_satisfaction(name))
  return 'anew'
end
