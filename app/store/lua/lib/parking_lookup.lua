-- Find the first parked lane. With fair share it is of the least satisfied policy with a fitting lane; returned queue scores have
-- the tier of this moment.
-- @use amounts fair_share_order parking queue_order
-- @reads pool_lanes pool_strict_line
-- @writes pool_parking pool_parking_needs

local FEW = 32  -- policies compared one by one

local function needs(pool, slot, room)
  return redis.call('ZRANGEBYSCORE', keys.pool_parking_needs(pool.name, slot), '-inf', amounts.format(room))
end

-- Return the first lane of a slot that fits the room, and its stored score.
local function head(pool, slot, room)
  local best, best_score = nil, nil
  for _, need in ipairs(needs(pool, slot, room)) do
    local first = redis.call('ZRANGE', keys.pool_parking(pool.name, slot, need), 0, 0, 'WITHSCORES')
    local queue_score = tonumber(first[2])
    if not best_score or queue_score < best_score then best, best_score = first[1], queue_score end
  end
  return best, best_score
end

-- Return the policies of these with a lane on a constraint that fits the room.
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
-- there, they are searched from the least satisfied on; of many with the same score the oldest lane is searched.
function parking_lookup.first(pool, constraint, room)
  if not fair_share_order.applies(pool) then return head(pool, constraint, room) end
  local candidates, tier, best, best_score
  local count = redis.call('ZCOUNT', keys.pool_parking_needs(pool.name, constraint), '-inf', amounts.format(room))
  if count == 0 then return nil end
  local score = count > FEW and fair_share_order.lowest_score(pool, function(components) return fitting_policies(pool, constraint, room, components) end)
  if not score then
    candidates, tier = fair_share_order.least_satisfied(pool, needs(pool, constraint, room))
  else
    if fair_share_order.count_at(pool, score) > FEW then best, best_score = oldest_lane(pool, constraint, room, score) end
    candidates = best and {} or fitting_policies(pool, constraint, room, fair_share_order.policies_at(pool, score))
    tier = fair_share_order.tier_of_score(pool, score)
  end
  for _, component in ipairs(candidates) do
    local id, stored_score = head(pool, constraint .. '@' .. component, room)
    if id and (not best_score or stored_score < best_score) then best, best_score = id, stored_score end
  end
  return best, best and queue_order.in_tier(tier, best_score)
end

-- Strict queueing: return the head of the line, lane and queue score.
function parking_lookup.line_head(pool)
  if fair_share_order.applies(pool) then return parking_lookup.first(pool, 'line', 0) end
  local first = redis.call('ZRANGE', keys.pool_strict_line(pool.name), 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

local function collect(pool, slot, room, tier, into)
  for _, need in ipairs(needs(pool, slot, room)) do
    local members = redis.call('ZRANGE', keys.pool_parking(pool.name, slot, need), 0, -1, 'WITHSCORES')
    for i = 1, #members, 2 do
      local stored_score = tonumber(members[i + 1])
      into[#into + 1] = {id = members[i], queue_score = tier and queue_order.in_tier(tier, stored_score) or stored_score}
    end
  end
end

-- Return all lanes on a constraint that fit the room.
function parking_lookup.all(pool, constraint, room)
  local lanes_found = {}
  if not fair_share_order.applies(pool) then collect(pool, constraint, room, nil, lanes_found)
  else
    for _, component in ipairs(needs(pool, constraint, room)) do
      collect(pool, constraint .. '@' .. component, room, fair_share_order.tier(pool, component), lanes_found)
    end
  end
  return lanes_found
end

-- Delete the slots of a constraint, whatever the index says.
function parking_lookup.clear(pool, constraint)
  for _, need_or_policy in ipairs(redis.call('ZRANGE', keys.pool_parking_needs(pool.name, constraint), 0, -1)) do
    local slot = constraint .. '@' .. need_or_policy
    for _, need in ipairs(redis.call('ZRANGE', keys.pool_parking_needs(pool.name, slot), 0, -1)) do
      redis.call('DEL', keys.pool_parking(pool.name, slot, need))
    end
    redis.call('DEL', keys.pool_parking_needs(pool.name, slot), keys.pool_parking(pool.name, constraint, need_or_policy))
  end
  redis.call('DEL', keys.pool_parking_needs(pool.name, constraint))
end
