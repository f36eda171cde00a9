-- Parking: each blocked lane of a pool is parked on one constraint that blocks it. The lane is examined again only after that
-- constraint gets free units. With fair share the lanes of each policy have slots of their own. So the least satisfied policy
-- is found first although tiers change.
-- @use amounts clock fair_share_order parking_tree queue_order
-- @reads lane_walltimes
-- @writes pool_blocked_since pool_parked pool_parking pool_parking_counts pool_parking_needs pool_strict_line

parking.NEW = 'new|pool|-'
parking.BACKFILL = 'backfill|'

local function slot_of(pool, id)
  local text = redis.call('HGET', keys.pool_parked(pool.name), id)
  if not text then return nil end
  return string.match(text, '^(%S+) (%S+) (%S+)$')
end

-- Return the constraint and the policy of a slot. Without fair share a slot has no policy.
local function constraint_and_policy(slot) return string.match(slot, '^([^@]+)@?(.*)$') end

-- Return constraint, need, since when (ms) capacity blocks the lane, slot; nil if the lane is not attached to the pool.
function parking.find(pool, id)
  local slot, need, since = slot_of(pool, id)
  if slot then return (constraint_and_policy(slot)), need, since, slot end
end

function parking.constraint_of(blocker)
  return blocker.kind .. '|' .. blocker.account .. '|' .. blocker.key
end

-- True if the constraint is capacity, not a limit or the fixed share.
function parking.is_capacity(constraint)
  return constraint == 'line' or constraint == parking.NEW or string.match(constraint, '^limit|pool|') or
    string.match(constraint, '^patience_held|') or string.match(constraint, '^victim_held|pool|')
end

-- Store the smallest need of a policy's lanes on a constraint, or remove a policy without lanes there. This is for fair share
-- only.
local function update_least_need(pool, constraint, component)
  local need = parking_tree.least_need(pool, constraint .. '@' .. component)
  if need then redis.call('ZADD', keys.pool_parking_needs(pool.name, constraint), need, component)
  else redis.call('ZREM', keys.pool_parking_needs(pool.name, constraint), component) end
end

-- Store the shortest walltime that a waiter of the lane promised, if the lane is parked on the patience hold: it may pass the
-- owner of the hold. Such lanes are found in the slot of backfill.
local function write_walltime(pool, id, slot, need, is_parked)
  if string.sub(slot, 1, 14) ~= 'patience_held|' then return end
  local shortest = is_parked and redis.call('ZRANGE', keys.lane_walltimes(id), 0, 0, 'WITHSCORES')[2]
  local backfill_slot = parking.BACKFILL .. slot
  local parking_key = keys.pool_parking(pool.name, backfill_slot, need)
  if shortest then redis.call('ZADD', parking_key, shortest, id)
  elseif redis.call('ZREM', parking_key, id) == 0 then return end
  parking_tree.update(pool, backfill_slot, need)
end

-- Store the score of a lane in its slot.
local function write_score(pool, id, slot, need, score)
  if slot == 'line' then return redis.call('ZADD', keys.pool_strict_line(pool.name), score, id) end
  redis.call('ZADD', keys.pool_parking(pool.name, slot, need), score, id)
  parking_tree.update(pool, slot, need)
  write_walltime(pool, id, slot, need, true)
end

local function unpark(pool, id, slot, need)
  if slot == 'line' then return redis.call('ZREM', keys.pool_strict_line(pool.name), id) end
  local constraint, component = constraint_and_policy(slot)
  redis.call('ZREM', keys.pool_parking(pool.name, slot, need), id)
  parking_tree.update(pool, slot, need)
  write_walltime(pool, id, slot, need, false)
  if component ~= '' then update_least_need(pool, constraint, component) end
  if redis.call('HINCRBY', keys.pool_parking_counts(pool.name), constraint, -1) == 0 then
    redis.call('HDEL', keys.pool_parking_counts(pool.name), constraint)
  end
end

-- Park a lane on a constraint. A lane that is parked on NEW is judged by the next pass.
function parking.park(pool, id, constraint, need, queue_score)
  local old_constraint, old_need, since, old_slot = parking.find(pool, id)
  local was_capacity, is_capacity = old_constraint and parking.is_capacity(old_constraint), parking.is_capacity(constraint)
  if not (was_capacity and is_capacity) then
    since = amounts.format(clock.now)
    if is_capacity then redis.call('ZADD', keys.pool_blocked_since(pool.name), since, id)
    elseif was_capacity then redis.call('ZREM', keys.pool_blocked_since(pool.name), id) end
  end
  local component = fair_share_order.applies(pool) and string.match(id, '^[^|]+')
  local slot = component and constraint .. '@' .. component or constraint
  need, queue_score = amounts.format(need), amounts.format(queue_order.without_tier(pool, queue_score))
  local moves = old_slot ~= slot or old_need ~= need
  if old_constraint and moves then unpark(pool, id, old_slot, old_need) end
  write_score(pool, id, slot, need, queue_score)
  if moves and slot ~= 'line' then
    redis.call('HINCRBY', keys.pool_parking_counts(pool.name), constraint, 1)
    if component then update_least_need(pool, constraint, component) end
  end
  redis.call('HSET', keys.pool_parked(pool.name), id, slot .. ' ' .. need .. ' ' .. since)
end

-- Store another score of a lane in its slot.
function parking.reposition(pool, id, queue_score)
  local slot, need = slot_of(pool, id)
  if slot then write_score(pool, id, slot, need, amounts.format(queue_order.without_tier(pool, queue_score))) end
end

-- Store the shortest walltime of a lane after a waiter with a walltime came or went.
function parking.update_walltime(pool, id)
  local slot, need = slot_of(pool, id)
  if slot then write_walltime(pool, id, slot, need, true) end
end

function parking.remove(pool, id)
  local slot, need = slot_of(pool, id)
  if not slot then return end
  unpark(pool, id, slot, need)
  redis.call('ZREM', keys.pool_blocked_since(pool.name), id)
  redis.call('HDEL', keys.pool_parked(pool.name), id)
end
