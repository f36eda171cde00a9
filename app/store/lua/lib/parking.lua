-- Where each lane of a pool is parked: on one violated constraint, so that only more room there can help it. With fair share the
-- lanes of each policy have slots of their own: the least satisfied is found first though tiers change.
-- @use amounts clock fair_share_order queue_order
-- @writes pool_parked pool_parking pool_parking_counts pool_parking_needs pool_strict_line

parking.NEW = 'new|pool|-'

local function slot_of(pool, id)
  local text = redis.call('HGET', keys.pool_parked(pool.name), id)
  if not text then return nil end
  return string.match(text, '^(%S+) (%S+) (%S+)$')
end

-- A slot is a constraint, and with fair share also the policy of its lanes.
local function constraint_and_policy(slot) return string.match(slot, '^([^@]+)@?(.*)$') end

-- Return constraint, need, since when (ms) capacity blocks the lane, slot; nil if the lane is not attached to the pool.
function parking.find(pool, id)
  local slot, need, since = slot_of(pool, id)
  if slot then return (constraint_and_policy(slot)), need, since, slot end
end

function parking.any(pool)
  return redis.call('EXISTS', keys.pool_parked(pool.name)) == 1
end

function parking.constraint_of(blocker)
  return blocker.kind .. '|' .. blocker.account .. '|' .. blocker.key
end

-- True if capacity blocks a lane on this constraint (and not a limit or the non-preemptible share).
function parking.is_capacity(constraint)
  return constraint == 'line' or constraint == parking.NEW or string.match(constraint, '^limit|pool|') or
    string.match(constraint, '^patience_held|') or string.match(constraint, '^victim_held|pool|')
end

-- Store the smallest need of a policy's lanes on a constraint, or remove the policy.
local function update_least_need(pool, constraint, component)
  local needs = redis.call('ZRANGE', keys.pool_parking_needs(pool.name, constraint .. '@' .. component), 0, 0, 'WITHSCORES')
  if needs[1] then redis.call('ZADD', keys.pool_parking_needs(pool.name, constraint), needs[2], component)
  else redis.call('ZREM', keys.pool_parking_needs(pool.name, constraint), component) end
end

local function unpark(pool, id, slot, need)
  if slot == 'line' then return redis.call('ZREM', keys.pool_strict_line(pool.name), id) end
  local constraint, component = constraint_and_policy(slot)
  local parking_key = keys.pool_parking(pool.name, slot, need)
  redis.call('ZREM', parking_key, id)
  if redis.call('EXISTS', parking_key) == 0 then
    redis.call('ZREM', keys.pool_parking_needs(pool.name, slot), need)
    if component ~= '' then update_least_need(pool, constraint, component) end
  end
  if redis.call('HINCRBY', keys.pool_parking_counts(pool.name), constraint, -1) == 0 then
    redis.call('HDEL', keys.pool_parking_counts(pool.name), constraint)
  end
end

-- Park a lane on a constraint; NEW is always met, so that the next pass judges the lane.
function parking.park(pool, id, constraint, need, queue_score)
  local old_constraint, old_need, since, old_slot = parking.find(pool, id)
  if not old_constraint or not (parking.is_capacity(old_constraint) and parking.is_capacity(constraint)) then since = amounts.format(clock.now) end
  local component = fair_share_order.applies(pool) and string.match(id, '^[^|]+')
  local slot = component and constraint .. '@' .. component or constraint
  need, queue_score = amounts.format(need), amounts.format(queue_order.without_tier(pool, queue_score))
  local moves = old_slot ~= slot or old_need ~= need
  if old_constraint and moves then unpark(pool, id, old_slot, old_need) end
  if slot == 'line' then
    redis.call('ZADD', keys.pool_strict_line(pool.name), queue_score, id)
  else
    redis.call('ZADD', keys.pool_parking(pool.name, slot, need), queue_score, id)
    if moves then
      redis.call('ZADD', keys.pool_parking_needs(pool.name, slot), need, need)
      redis.call('HINCRBY', keys.pool_parking_counts(pool.name), constraint, 1)
      if component then update_least_need(pool, constraint, component) end
    end
  end
  redis.call('HSET', keys.pool_parked(pool.name), id, slot .. ' ' .. need .. ' ' .. since)
end

-- Store another score of a lane in its slot.
function parking.reposition(pool, id, queue_score)
  local slot, need = slot_of(pool, id)
  if not slot then return end
  local parking_key = slot == 'line' and keys.pool_strict_line(pool.name) or keys.pool_parking(pool.name, slot, need)
  redis.call('ZADD', parking_key, amounts.format(queue_order.without_tier(pool, queue_score)), id)
end

function parking.remove(pool, id)
  local slot, need = slot_of(pool, id)
  if not slot then return end
  unpark(pool, id, slot, need)
  redis.call('HDEL', keys.pool_parked(pool.name), id)
end

-- Return the constraints of a set (of all, if nil) that have lanes parked on them.
function parking.occupied_constraints(pool, set)
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
