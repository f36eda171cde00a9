-- Find the first parked lane. With fair share it is a lane of the least satisfied policy that has a fitting lane. Returned
-- queue scores have the present tier.
-- @use amounts fair_share_order parking parking_tree queue_order
-- @reads pool_lanes pool_parking_counts pool_parking_needs pool_strict_line

local FEW = 32  -- policies compared one by one

-- Return the policies with a lane on a constraint that fits the room. This is for fair share only.
local function policies_by_need(pool, constraint, room)
  return redis.call('ZRANGEBYSCORE', keys.pool_parking_needs(pool.name, constraint), '-inf', amounts.format(room))
end

-- Return the components of a list that have a lane on a constraint that fits the room.
local function fitting_policies(pool, constraint, room, components)
  local fitting = {}
  for first = 1, #components, 1000 do  -- unpack takes so many for sure
    local least = redis.call('ZMSCORE', keys.pool_parking_needs(pool.name, constraint), unpack(components, first, math.min(#components, first + 999)))
    for i, need in ipairs(least) do
      if need and tonumber(need) <= room then fitting[#fitting + 1] = components[first + i - 1] end
    end
  end
  return fitting
end

-- Return the first lane, by class and age, of a policy with this score that fits; nil also if the search would be long.
local function oldest_lane(pool, constraint, room, score)
  for first = 0, 7 * FEW, FEW do
    local page = redis.call('ZRANGE', keys.pool_lanes(pool.name), first, first + FEW - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      local parked_on, need = parking.find(pool, page[i])
      local fits = parked_on == constraint and tonumber(need) <= room
      if fits and fair_share_order.score(pool, string.match(page[i], '^[^|]+')) == score then return page[i], tonumber(page[i + 1]) end
    end
  end
end

-- Return the first lane in queue order on a constraint that fits the room, and its queue score. If many policies have lanes
-- there, search them from the least satisfied on. If many have the same score, search their oldest lane.
function parking_lookup.first(pool, constraint, room)
  if not fair_share_order.applies(pool) then return parking_tree.first(pool, constraint, room) end
  local candidates, tier, best, best_score
  local count = redis.call('ZCOUNT', keys.pool_parking_needs(pool.name, constraint), '-inf', amounts.format(room))
  if count == 0 then return nil end
  local score = count > FEW and fair_share_order.lowest_score(pool, function(components) return fitting_policies(pool, constraint, room, components) end)
  if not score then
    candidates, tier = fair_share_order.least_satisfied(pool, policies_by_need(pool, constraint, room))
  else
    local equals = fair_share_order.policies_at(pool, score)
    if #equals > FEW then best, best_score = oldest_lane(pool, constraint, room, score) end
    candidates = best and {} or fitting_policies(pool, constraint, room, equals)
    tier = fair_share_order.tier_of_score(pool, score)
  end
  for _, component in ipairs(candidates) do
    local id, stored_score = parking_tree.first(pool, constraint .. '@' .. component, room)
    if id and (not best_score or stored_score < best_score) then best, best_score = id, stored_score end
  end
  return best, best and queue_order.in_tier(tier, best_score)
end

-- Return the head of the line (strict queueing): lane and queue score.
function parking_lookup.line_head(pool)
  if fair_share_order.applies(pool) then return parking_lookup.first(pool, 'line', 0) end
  local first = redis.call('ZRANGE', keys.pool_strict_line(pool.name), 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

-- Return the slots of a constraint that may have a lane that fits the room: with fair share one for each policy.
function parking_lookup.slots(pool, constraint, room)
  if not fair_share_order.applies(pool) then return {constraint} end
  local slots = {}
  for i, component in ipairs(policies_by_need(pool, constraint, room)) do slots[i] = constraint .. '@' .. component end
  return slots
end

-- Return the constraints of a set (of all, if nil) that have lanes parked on them.
function parking_lookup.occupied_constraints(pool, set)
  if not set then return redis.call('HKEYS', keys.pool_parking_counts(pool.name)) end
  local names, occupied = {}, {}
  for constraint in pairs(set) do names[#names + 1] = constraint end
  for first = 1, #names, 1000 do  -- unpack takes so many for sure
    local numbers = redis.call('HMGET', keys.pool_parking_counts(pool.name), unpack(names, first, math.min(#names, first + 999)))
    for i, count in ipairs(numbers) do
      if count then occupied[#occupied + 1] = names[first + i - 1] end
    end
  end
  return occupied
end
