-- A page of the queue of a fair-share pool: tier by tier, and in a tier by class and age.
-- @use amounts fair_share_order lanes queue_order
-- @keys lane pool_lanes

-- The lanes of a pool by tier, from a tier on: the tiers in order, and tier → lanes.
local function by_tier(pool, from)
  local of, tiers, known = {}, {}, {}
  for _, id in ipairs(redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1)) do
    local component = lanes.open(id).component
    known[component] = known[component] or fair_share_order.tier(pool, component)
    local tier = known[component]
    if tier >= from and not of[tier] then
      of[tier] = {}
      tiers[#tiers + 1] = tier
    end
    if tier >= from then of[tier][#of[tier] + 1] = id end
  end
  table.sort(tiers)
  return tiers, of
end

-- The next of a lane, read ahead by one.
local function fetch(stream)
  local following = redis.call('ZRANGEBYSCORE', keys.lane(stream.lane), stream.from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  stream.id, stream.inner = following[1], tonumber(following[2])
  stream.from = following[2] and '(' .. following[2]
end

local function merge(tier, ids_of, from, count, ids, places)
  local streams = {}
  for i, id in ipairs(ids_of) do
    streams[i] = {lane = id, from = from}
    fetch(streams[i])
  end
  while #ids < count do
    local first
    for _, stream in ipairs(streams) do
      if stream.id and (not first or stream.inner < first.inner) then first = stream end
    end
    if not first then return end
    ids[#ids + 1], places[#places + 1] = first.id, amounts.format(queue_order.in_tier(tier, first.inner))
    fetch(first)
  end
end

-- Up to `count` behind a place: ids and places.
function fair_share_pages.read(pool, after, count)
  local from = math.max(0, math.floor(after / const.TIER))
  local tiers, of = by_tier(pool, from)
  local ids, places = {}, {}
  for _, tier in ipairs(tiers) do
    local begins = tier == from and after >= 0 and '(' .. amounts.format(after % const.TIER) or '-inf'
    merge(tier, of[tier], begins, count, ids, places)
  end
  return ids, places
end

-- Up to `most` of the shapes that wait: of each policy the same number, its first ones, so that none hides the others; where there
-- are more policies than that, those of the least satisfied.
function fair_share_pages.select_lanes(pool, most)
  local of, components = {}, {}
  for _, id in ipairs(redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1)) do
    local component = lanes.open(id).component
    if not of[component] then
      of[component] = {}
      components[#components + 1] = component
    end
    of[component][#of[component] + 1] = id
  end
  local places = {}
  for _, component in ipairs(components) do places[component] = fair_share_order.tier(pool, component) end
  table.sort(components, function(one, other)
    if places[one] ~= places[other] then return places[one] < places[other] end
    return one < other
  end)
  local shapes, each = {}, math.max(1, math.floor(most / math.max(1, #components)))
  for _, component in ipairs(components) do
    for i = 1, math.min(each, #of[component], most - #shapes) do shapes[#shapes + 1] = of[component][i] end
  end
  return shapes
end
