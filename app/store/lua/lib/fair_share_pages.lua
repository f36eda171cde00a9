-- A page of the queue of a fair-share pool: tier by tier, and in a tier by class and age.
-- @use amounts fair_share_order queue_order
-- @reads pool_policy_lanes pool_policy_queue

local PAGE = 32  -- waiters read ahead of a policy

-- Return the policies with waiters by tier, from a tier on: the tiers in order, and tier → policies.
local function by_tier(pool, from)
  local policies_of, tiers = {}, {}
  for _, row in ipairs(fair_share_order.policies_by_tier(pool)) do
    if row.tier >= from and redis.call('EXISTS', keys.pool_policy_queue(pool.name, row.component)) == 1 then
      if not policies_of[row.tier] then
        policies_of[row.tier] = {}
        tiers[#tiers + 1] = row.tier
      end
      table.insert(policies_of[row.tier], row.component)
    end
  end
  return tiers, policies_of
end

-- Read the next waiter of a policy ahead.
local function fetch(pool, stream)
  if not stream.rows or stream.next_row > #stream.rows then
    stream.rows = redis.call('ZRANGEBYSCORE', keys.pool_policy_queue(pool.name, stream.component), stream.from, '+inf', 'WITHSCORES', 'LIMIT', 0, PAGE)
    stream.next_row = 1
  end
  stream.id, stream.lane_score = stream.rows[stream.next_row], tonumber(stream.rows[stream.next_row + 1])
  stream.from = stream.id and '(' .. stream.rows[stream.next_row + 1]
  stream.next_row = stream.next_row + 2
end

local function merge(pool, tier, components, from, count, ids, queue_scores)
  local streams = {}
  for i, component in ipairs(components) do
    streams[i] = {component = component, from = from}
    fetch(pool, streams[i])
  end
  while #ids < count do
    local first
    for _, stream in ipairs(streams) do
      if stream.id and (not first or stream.lane_score < first.lane_score) then first = stream end
    end
    if not first then return end
    ids[#ids + 1], queue_scores[#queue_scores + 1] = first.id, amounts.format(queue_order.in_tier(tier, first.lane_score))
    fetch(pool, first)
  end
end

-- Return up to `count` waiters behind a queue score: ids and queue scores.
function fair_share_pages.read(pool, after, count)
  local from = math.max(0, math.floor(after / const.TIER_STEP))
  local tiers, policies_of = by_tier(pool, from)
  local ids, queue_scores = {}, {}
  for _, tier in ipairs(tiers) do
    local begins = tier == from and after >= 0 and '(' .. amounts.format(after % const.TIER_STEP) or '-inf'
    if #ids < count then merge(pool, tier, policies_of[tier], begins, count, ids, queue_scores) end
  end
  return ids, queue_scores
end

-- Return up to `most` lanes, the same number of each policy, so that no policy hides the others. If there are more policies than
-- `most`, return lanes of the lowest tiers.
function fair_share_pages.select_lanes(pool, most)
  local tiers, policies_of = by_tier(pool, 0)
  local components, lane_ids = {}, {}
  for _, tier in ipairs(tiers) do
    table.sort(policies_of[tier])
    for _, component in ipairs(policies_of[tier]) do components[#components + 1] = component end
  end
  local per_policy = math.max(1, math.floor(most / math.max(1, #components)))
  for _, component in ipairs(components) do
    if #lane_ids >= most then break end
    for _, id in ipairs(redis.call('ZRANGE', keys.pool_policy_lanes(pool.name, component), 0, math.min(per_policy, most - #lane_ids) - 1)) do
      lane_ids[#lane_ids + 1] = id
    end
  end
  return lane_ids
end
