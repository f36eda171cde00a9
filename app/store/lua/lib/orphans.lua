-- Orphaned victims: the hold that they leave for was closed. A hold can have any number of victims. If the work budget does not
-- suffice for all, `resume` orphans the rest. Until then the rest is listed with the closed hold, and no decision is made in the pool.
-- @use amounts clock pool_changes victims work_budget
-- @reads pool_victims
-- @writes hold_victims pool pool_unfinished preemption_deadlines request unfinished

local PAGE = 32

local is_first_page = true  -- a call that resumes work orphans one page in any case: the work of other pools may use up its budget

local function field(owner) return 'orphans ' .. owner end

-- Orphan one victim: its deadline is paused from now on. If the request was lost, only its entries in the indexes change.
function orphans.orphan(pool, id)
  victims.set_owner(pool, id, '-')
  redis.call('ZREM', keys.preemption_deadlines(), id)
  if redis.call('EXISTS', keys.request(id)) == 1 then redis.call('HSET', keys.request(id), 'orphaned_ms', amounts.format(clock.now)) end
end

-- Orphan the victims of a closed hold while the work budget lasts. Return true if none is left.
local function orphan_all(pool, owner, resumes)
  while true do
    if work_budget.is_used_up() and not (resumes and is_first_page) then return false end
    is_first_page = false
    local ids, changed = victims.of_hold(pool, owner, PAGE), {}
    if #ids == 0 then return true end
    local owners = redis.call('HMGET', keys.pool_victims(pool.name), unpack(ids))
    for i, id in ipairs(ids) do
      if owners[i] == owner then orphans.orphan(pool, id) end
      changed[i] = 'request:' .. id
    end
    redis.call('SREM', keys.hold_victims(pool.name, owner), unpack(ids))  -- also one that does not leave for it, else this has no end
    pool_changes.add(pool.name, changed)
  end
end

-- Orphan the victims of a hold that this call closed. What is beyond the work budget is left to `resume`.
function orphans.begin(pool, owner)
  if orphan_all(pool, owner) then return end
  pool.fields.orphaning = '1'
  redis.call('HSET', pool.key, 'orphaning', '1')
  redis.call('HSET', keys.pool_unfinished(pool.name), field(owner), '1')
  redis.call('SADD', keys.unfinished(), pool.name)
end

-- Orphan the rest of the victims of closed holds. Return true if none is left.
function orphans.resume(pool)
  if not pool.fields.orphaning then return true end
  for _, name in ipairs(redis.call('HKEYS', keys.pool_unfinished(pool.name))) do
    local owner = string.match(name, '^orphans (.+)$')
    if owner and not orphan_all(pool, owner, true) then return false end
    if owner then redis.call('HDEL', keys.pool_unfinished(pool.name), name) end
  end
  pool.fields.orphaning = nil
  redis.call('HDEL', pool.key, 'orphaning')
  return true
end

-- True if the hold of an owner was closed and the rest of its victims is not orphaned yet.
function orphans.is_pending(pool, owner)
  return pool.fields.orphaning ~= nil and redis.call('HEXISTS', keys.pool_unfinished(pool.name), field(owner)) == 1
end
