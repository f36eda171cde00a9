-- The victims of a pool: preempting allocations, each with the owner of the hold that it leaves for (`-` none, `!` a limit). Also
-- kept: the victims of each hold, the number of orphaned victims, and at each account the units leaving.
-- @use account_updates amounts
-- @writes hold_victims pool pool_victims

local function is_owner(owner) return owner and owner ~= '-' and owner ~= '!' end

local function count_orphans(pool, by)
  local count = redis.call('HINCRBY', pool.key, 'orphaned_victims', by)
  if count <= 0 then redis.call('HDEL', pool.key, 'orphaned_victims') end
  pool.fields.orphaned_victims = count > 0 and amounts.format(count) or nil
end

-- Return the component and origin of the waiter that a victim leaves for; empty if the waiter has no origin.
function victims.origin_of(waiter)
  return waiter.origin and waiter.component .. '|' .. waiter.origin or ''
end

-- Remove a victim. Return the owner it left for, false if it was none.
function victims.remove(pool, id)
  local owner = redis.call('HGET', keys.pool_victims(pool.name), id)
  if is_owner(owner) then redis.call('SREM', keys.hold_victims(pool.name, owner), id) end
  if owner == '-' then count_orphans(pool, -1) end
  redis.call('HDEL', keys.pool_victims(pool.name), id)
  return owner
end

-- Add a victim, or change the owner for which it leaves.
function victims.set_owner(pool, id, owner)
  victims.remove(pool, id)
  redis.call('HSET', keys.pool_victims(pool.name), id, owner)
  if is_owner(owner) then redis.call('SADD', keys.hold_victims(pool.name, owner), id) end
  if owner == '-' then count_orphans(pool, 1) end
end

-- Return all victims of a hold, or at most `count`.
function victims.of_hold(pool, owner, count)
  local key = keys.hold_victims(pool.name, owner)
  return count and redis.call('SRANDMEMBER', key, count) or redis.call('SMEMBERS', key)
end

-- True if the pool has an orphaned victim that no pass has judged, or a victim that still has to be orphaned (`orphans`).
function victims.has_orphans(pool) return pool.fields.orphaned_victims ~= nil or pool.fields.orphaning ~= nil end

-- Count the units of an allocation that begins to leave (1), or that left or was reprieved (-1).
function victims.count_units(path, units, sign) account_updates.add(path, units, {'leaving'}, sign) end

-- Return the units that all victims will free at an account.
function victims.units_leaving(account, key) return account.leaving[key] or 0 end
