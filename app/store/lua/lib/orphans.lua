-- Orphaned victims: the hold for which they leave was closed. A hold can have any number of victims. If the work budget does
-- not suffice for all of them, `resume` orphans the rest. Until then the remaining victims are listed with the closed hold, and
-- the planner decides nothing in the pool.
-- @use amounts clock pool_changes unfinished_items victims work_budget
-- @reads pool_victims
-- @writes hold_victims preemption_deadlines request

local PAGE = 32

local is_first_page = true  -- a call that resumes work orphans one page in any case: the work of other pools may use up its budget

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
    redis.call('SREM', keys.hold_victims(pool.name, owner), unpack(ids))  -- also remove a victim that now leaves for another hold, else the loop never ends
    pool_changes.add(pool.name, changed)
  end
end

-- Orphan the victims of a hold that this call closed. Victims beyond the work budget are left to `resume`.
function orphans.begin(pool, owner)
  if not orphan_all(pool, owner) then unfinished_items.note(pool, 'orphaning', owner) end
end

-- Orphan the rest of the victims of closed holds. Return true if none is left.
function orphans.resume(pool)
  return unfinished_items.resume(pool, 'orphaning', function(owner) return orphan_all(pool, owner, true) end)
end

-- True if the hold of an owner was closed, and some of its victims are not orphaned yet.
function orphans.is_pending(pool, owner) return unfinished_items.contains(pool, 'orphaning', owner) end
