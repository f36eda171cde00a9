-- Looking for the first of those who are parked. With fair share that is somebody of the least satisfied policy among those who
-- have anybody there; wherever a place is told, its tier is that of this moment.
-- @use amounts fair_share_order parking queue_order
-- @keys pool_lanes pool_strict_line pool_parking_needs pool_parking

local FEW = 32  -- policies that are looked at one by one

local function needs(pool, spot, room)
  return redis.call('ZRANGEBYSCORE', keys.pool_parking_needs(pool.name, spot), '-inf', amounts.format(room))
end

-- The first kept place on a spot: lane and what is kept of its place.
local function head(pool, spot, room)
  local best, at = nil, nil
  for _, need in ipairs(needs(pool, spot, room)) do
    local first = redis.call('ZRANGE', keys.pool_parking(pool.name, spot, need), 0, 0, 'WITHSCORES')
    local place = tonumber(first[2])
    if not at or place < at then best, at = first[1], place end
  end
  return best, at
end

-- Of these policies those with somebody on a constraint who needs no more than there is room.
local function fitting(pool, constraint, room, components)
  local some = {}
  for first = 1, #components, 1000 do  -- as many as unpack takes for sure
    local least = redis.call('ZMSCORE', keys.pool_parking_needs(pool.name, constraint), unpack(components, first, math.min(#components, first + 999)))
    for i, need in ipairs(least) do
      if need and tonumber(need) <= room then some[#some + 1] = components[first + i - 1] end
    end
  end
  return some
end

-- The first of the pool's lanes, by class and age, that is of a policy with this satisfaction and fits; nil also if that would be
-- a long search.
local function eldest(pool, constraint, room, score)
  for first = 0, 7 * FEW, FEW do
    local page = redis.call('ZRANGE', keys.pool_lanes(pool.name), first, first + FEW - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      local on, need = parking.find(pool, page[i])
      local fits = on == constraint and tonumber(need) <= room
      if fits and fair_share_order.score(pool, string.match(page[i], '^[^|]+')) == score then return page[i], tonumber(page[i + 1]) end
    end
  end
end

-- The first in order among those on a constraint that need no more than there is room: lane and place. Where many policies have
-- somebody there, they are gone through from the least satisfied on, and of many who are alike the eldest is looked for.
function parking_lookup.first(pool, constraint, room)
  if not fair_share_order.applies(pool) then return head(pool, constraint, room) end
  local alike, tier, best, at
  local count = redis.call('ZCOUNT', keys.pool_parking_needs(pool.name, constraint), '-inf', amounts.format(room))
  if count == 0 then return nil end
  local score = count > FEW and fair_share_order.lowest_score(pool, function(components) return fitting(pool, constraint, room, components) end)
  if not score then
    alike, tier = fair_share_order.least_satisfied(pool, needs(pool, constraint, room))
  else
    if fair_share_order.count_at(pool, score) > FEW then best, at = eldest(pool, constraint, room, score) end
    alike = best and {} or fitting(pool, constraint, room, fair_share_order.policies_at(pool, score))
    tier = fair_share_order.tier_of_score(pool, score)
  end
  for _, component in ipairs(alike) do
    local id, kept = head(pool, constraint .. '@' .. component, room)
    if id and (not at or kept < at) then best, at = id, kept end
  end
  return best, best and queue_order.in_tier(tier, at)
end

-- Strict queueing: the first of the line, lane and place.
function parking_lookup.line_head(pool)
  if fair_share_order.applies(pool) then return parking_lookup.first(pool, 'line', 0) end
  local first = redis.call('ZRANGE', keys.pool_strict_line(pool.name), 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

local function collect(pool, spot, room, tier, into)
  for _, need in ipairs(needs(pool, spot, room)) do
    local here = redis.call('ZRANGE', keys.pool_parking(pool.name, spot, need), 0, -1, 'WITHSCORES')
    for i = 1, #here, 2 do
      local kept = tonumber(here[i + 1])
      into[#into + 1] = {id = here[i], place = tier and queue_order.in_tier(tier, kept) or kept}
    end
  end
end

-- All on a constraint that need no more than there is room.
function parking_lookup.all(pool, constraint, room)
  local found = {}
  if not fair_share_order.applies(pool) then collect(pool, constraint, room, nil, found)
  else
    for _, component in ipairs(needs(pool, constraint, room)) do
      collect(pool, constraint .. '@' .. component, room, fair_share_order.tier(pool, component), found)
    end
  end
  return found
end

-- Whoever is parked on a constraint is there no more, be it noted as it may.
function parking_lookup.clear(pool, constraint)
  for _, one in ipairs(redis.call('ZRANGE', keys.pool_parking_needs(pool.name, constraint), 0, -1)) do
    local spot = constraint .. '@' .. one
    for _, need in ipairs(redis.call('ZRANGE', keys.pool_parking_needs(pool.name, spot), 0, -1)) do
      redis.call('DEL', keys.pool_parking(pool.name, spot, need))
    end
    redis.call('DEL', keys.pool_parking_needs(pool.name, spot), keys.pool_parking(pool.name, constraint, one))
  end
  redis.call('DEL', keys.pool_parking_needs(pool.name, constraint))
end
