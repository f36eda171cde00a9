-- Fair share: how much each policy has of what is its own, by its published share and its present use. The less, the sooner it
-- is served: policies with the same satisfaction are one tier of the queue, and a place is the tier, then class, then age.
-- @use amounts dirty_pools
-- @keys pool pool_satisfaction

local BILLION = 1e9
local NOISE = 1000  -- a share is published in 10^-12 of the pool; so much more than it is nothing
local TIERS = 8191

function fair_share_order.applies(pool) return pool.fields.discipline == 'fair_share' end

-- Of one whose share was never published, as it asked for nothing then: what it uses of the pool, by its weight.
local function unpublished(pool, policy)
  local most = 0
  for key, capacity in pairs(pool.limit) do most = math.max(most, (policy.used[key] or 0) / capacity) end
  return most / tonumber(policy.fields.weight)
end

-- 1. nothing is its own: infinite 2. it uses more than its share: by how much 3. else how much of its share it uses: of the keys on
-- which it wants more than its share the one it has most of (0 if none of these is its own); if there are no such keys, of all the
-- one it has least of.
local function ratio(pool, policy)
  if next(policy.fair_share) == nil then return unpublished(pool, policy) end
  local beyond, wanted, least = nil, nil, nil
  for key, fair in pairs(policy.fair_share) do
    local capacity = pool.limit[key]
    local used = capacity and (policy.used[key] or 0) / capacity * const.SHARE or 0
    local part = fair > NOISE and used / fair
    if part then least = math.min(least or part, part) end
    if not policy.demand_met[key] then wanted = math.max(wanted or 0, part or 0) end
    if used > fair + NOISE then beyond = math.max(beyond or 0, fair > 0 and used / fair or const.EXACT) end
  end
  if not least then return const.EXACT end
  return beyond or wanted or least
end

local function score_of(pool, policy)
  return amounts.format(math.min(const.EXACT, math.floor(ratio(pool, policy) * BILLION)))
end

-- What is noted of a policy, and what should be; nil and nil by other rules.
function fair_share_order.scores(pool, policy)
  if not fair_share_order.applies(pool) then return nil, nil end
  local is = redis.call('ZSCORE', keys.pool_satisfaction(pool.name), policy.component)
  return is and amounts.format(tonumber(is)), score_of(pool, policy)
end

-- A policy's use or published share has changed.
function fair_share_order.update(pool, policy)
  if not fair_share_order.applies(pool) then return end
  local score = score_of(pool, policy)
  local changed = redis.call('ZADD', keys.pool_satisfaction(pool.name), 'CH', score, policy.component)
  local matters = pool.fields.patience or pool.fields.queueing == 'strict'  -- somebody may be first by now
  if changed == 1 and matters and not pool.fields.unsettled then dirty_pools.mark(pool) end  -- what is unsettled will be looked at anyhow
end

-- What is noted of a policy.
function fair_share_order.score(pool, component)
  return amounts.format(tonumber(redis.call('ZSCORE', keys.pool_satisfaction(pool.name), component) or 0))
end

-- How many policies are less satisfied than that; beyond TIERS it makes no difference any more.
function fair_share_order.tier_of_score(pool, score)
  return math.min(TIERS, redis.call('ZCOUNT', keys.pool_satisfaction(pool.name), '-inf', '(' .. score))
end

-- How many are less satisfied than a policy.
function fair_share_order.tier(pool, component) return fair_share_order.tier_of_score(pool, fair_share_order.score(pool, component)) end

-- The least satisfied of these, as several may be alike, and their tier.
function fair_share_order.least_satisfied(pool, components)
  local best, alike = nil, {}
  for first = 1, #components, 1000 do  -- as many as unpack takes for sure
    local scores = redis.call('ZMSCORE', keys.pool_satisfaction(pool.name), unpack(components, first, math.min(#components, first + 999)))
    for i, score in ipairs(scores) do
      local is = tonumber(score or 0)
      if not best or is < best then best, alike = is, {} end
      if is == best then alike[#alike + 1] = components[first + i - 1] end
    end
  end
  return alike, fair_share_order.tier(pool, alike[1])
end

-- The lowest satisfaction there is among policies that `fits` leaves of those it is asked about; nil if there is none.
function fair_share_order.lowest_score(pool, fits)
  local first, PAGE = 0, 32
  while true do
    local page = redis.call('ZRANGE', keys.pool_satisfaction(pool.name), first, first + PAGE - 1, 'WITHSCORES')
    if #page == 0 then return nil end
    local components, scores = {}, {}
    for i = 1, #page, 2 do
      components[#components + 1] = page[i]
      scores[page[i]] = amounts.format(tonumber(page[i + 1]))
    end
    local fitting = fits(components)[1]
    if fitting then return scores[fitting] end
    first = first + PAGE
  end
end

-- How many policies have just this satisfaction, and which.
function fair_share_order.count_at(pool, score) return redis.call('ZCOUNT', keys.pool_satisfaction(pool.name), score, score) end
function fair_share_order.policies_at(pool, score) return redis.call('ZRANGEBYSCORE', keys.pool_satisfaction(pool.name), score, score) end

-- A pool's rules have changed: how it is watched from now on, until somebody has looked. By other rules nobody is more or less
-- satisfied, and what is kept of who starves is void.
function fair_share_order.watch_state(name)
  local two = redis.call('HMGET', keys.pool(name), 'discipline', 'watched')
  if two[1] == 'fair_share' and two[2] ~= 'anew' then return '1' end
  if two[1] ~= 'fair_share' then redis.call('DEL', keys.pool_satisfaction(name)) end
  return 'anew'
end
