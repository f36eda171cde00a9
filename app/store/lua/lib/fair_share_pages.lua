-- A page of the queue of a fair-share pool: tier by tier, and in a tier by class and age.
-- @use amounts fair_share_order lanes queue_order
-- @reads lane pool_lanes

-- Return the lanes of a pool by tier, from a tier on: the tiers in order, and tier → lanes.
local function by_tier(pool, from)
  local lanes_by_key, tiers, tier_of = {}, {}, {}
  for _, id in ipairs(redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1)) do
    local component = lanes.open(id).component
    tier_of[component] = tier_of[component] or fair_share_order.tier(pool, component)
    local tier = tier_of[component]
    if tier >= from and not lanes_by_key[tier] then
      lanes_by_key[tier] = {}
      tiers[#tiers + 1] = tier
    end
    if tier >= from then lanes_by_key[tier][#lanes_by_key[tier] + 1] = id end
  end
  table.sort(tiers)
  return tiers, lanes_by_key
end

-- Read the next waiter of a lane ahead.
local function fetch(stream)
  local row = redis.call('ZRANGEBYSCORE', keys.lane(stream.lane), stream.from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  stream.id, stream.lane_score = row[1], tonumber(row[2])
  stream.from = row[2] and '(' .. row[2]
end

local function merge(tier, ids_of, from, count, ids, queue_scores)
  local streams = {}
  for i, id in ipairs(ids_of) do
    streams[i] = {lane = id, from = from}
    fetch(streams[i])
  end
  while #ids < count do
    local first
    for _, stream in ipairs(streams) do
      if stream.id and (not first or stream.lane_score < first.lane_score) then first = stream end
    end
    if not first then return end
    ids[#ids + 1], queue_scores[#queue_scores + 1] = first.id, amounts.format(queue_order.in_tier(tier, first.lane_score))
    fetch(first)
  end
end

-- Return up to `count` waiters behind a queue score: ids and queue scores.
function fair_share_pages.read(pool, after, count)
  local from = math.max(0, math.floor(after / const.TIER_STEP))
  local tiers, lanes_by_key = by_tier(pool, from)
  local ids, queue_scores = {}, {}
  for _, tier in ipairs(tiers) do
    local begins = tier == from and after >= 0 and '(' .. amounts.format(after % const.TIER_STEP) or '-inf'
    merge(tier, lanes_by_key[tier], begins, count, ids, queue_scores)
  end
  return ids, queue_scores
end

-- Return up to `most` lanes, of each policy the same number, so that no policy hides the others. If there are more policies than
-- that, those of the lowest tiers.
function fair_share_pages.select_lanes(pool, most)
  local lanes_by_key, components = {}, {}
  for _, id in ipairs(redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1)) do
    local component = lanes.open(id).component
    if not lanes_by_key[component] then
      lanes_by_key[component] = {}
      components[#components + 1] = component
    end
    lanes_by_key[component][#lanes_by_key[component] + 1] = id
  end
  local queue_scores = {}
  for _, component in ipairs(components) do queue_scores[component] = fair_share_order.tier(pool, component) end
  table.sort(components, function(one, other)
    if queue_scores[one] ~= queue_scores[other] then return queue_scores[one] < queue_scores[other] end
    return one < other
  end)
  local lane_ids, per_policy = {}, math.max(1, math.floor(most / math.max(1, #components)))
  for _, component in ipairs(components) do
    for i = 1, math.min(per_policy, #lanes_by_key[component], most - #lane_ids) do lane_ids[#lane_ids + 1] = lanes_by_key[component][i] end
  end
  return lane_ids
end
