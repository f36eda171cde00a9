-- Grants, and the end of grants. No other file books the units of allocations.
-- @use account_updates accounts amounts clock counters crossings dirty_pools fair_share_order lanes leases nudges outbox patience_hold queue requests templates victim_holds victims
-- @reads pool_holds
-- @writes meta pool_allocation_records pool_allocations pool_walltime_ends preemption_deadlines waiting

function grants.end_patience_hold(pool)
  local owner = patience_hold.owner(pool)
  if not owner then return end
  patience_hold.close(pool, owner)
  for _, account in ipairs(owner.path) do dirty_pools.mark_constraints(pool, account, owner.lane.units, {'patience_held'}) end
end

-- End a victim hold. Its victims are orphaned until the next reconcile.
function grants.end_victim_hold(pool, hold)
  if victim_holds.close(pool, hold) then nudges.send() end
  for _, account in ipairs(hold.path) do dirty_pools.mark_constraints(pool, account, hold.lane.units, {'victim_held', 'patience_held'}) end
end

-- End every hold whose owner's path goes through an account, before the path changes.
function grants.end_holds_through(pool, account)
  if pool.fields.patience then grants.end_patience_hold(pool) end
  for _, hold in ipairs({unpack(victim_holds.list(pool))}) do
    if hold.account_keys[account.key] then grants.end_victim_hold(pool, hold) end
  end
end

local function columns(fixed) return fixed and {'used', 'fixed'} or {'used'} end

-- Add the units to every account of the path, or subtract them (sign -1). Return whether the pool has waiters.
local function debit(path, lane, sign)
  local pool = path[#path]
  account_updates.add(path, lane.units, columns(lane.fixed), sign)
  if not lanes.any_attached(pool) then return false end
  fair_share_order.update(pool, path[1])
  crossings.move(path, lane.units, 'p')
  if lane.fixed then crossings.move(path, lane.units, 'f') end
  if sign > 0 then
    dirty_pools.mark(pool)
    return true
  end
  for _, account in ipairs(path) do dirty_pools.mark_constraints(pool, account, lane.units, {'limit', 'victim_held', 'patience_held'}) end
  if lane.fixed then dirty_pools.mark_constraints(pool, path[1], lane.units, {'fixed'}) end
  return true
end

-- Grant a request under a new fence, unless the caller has written the fence. A request without a path is granted outside of
-- any pool. `fields` as in `requests.transition`.
function grants.allocate(path, lane, request, fields, fence)
  local pool = path and path[#path]
  fence = fence or amounts.format(redis.call('HINCRBY', keys.meta(), 'fence', 1))
  leases.begin(request)
  if pool then
    redis.call('ZADD', keys.pool_allocations(pool.name), fence, request.id)
    if request.walltime_s then
      redis.call('ZADD', keys.pool_walltime_ends(pool.name), amounts.format(clock.after(request.walltime_s)), request.id)
    end
    debit(path, lane, 1)
    if lane.fixed then account_updates.shift_group_stacks(path) end
  end
  local changes = {'pool', pool and pool.name or '', 'fence', fence, 'granted_ms', amounts.format(clock.now)}
  if request.preempted_by then requests.set_all(changes, {'reason', 'preempted_by'}, '') end
  requests.transition(request, states.allocated, 'allocated', changes, fields)
  if pool then redis.call('HSET', keys.pool_allocation_records(pool.name), request.id, requests.allocation_record(request)) end
  counters.add_wait(pool and pool.name or '', math.max(0, clock.now - tonumber(request.queued_ms or request.submitted_ms)))
  if request.task then outbox.put(request.task) end
end

-- Take a waiter out of every queue; its holds end.
function grants.dequeue(request, lane)
  for _, name in ipairs(lanes.pools(lane)) do
    local pool = accounts.pool(name)
    local is_patient = pool.fields.patience == request.id
    local hold = pool.fields.victim_holds and redis.call('HEXISTS', keys.pool_holds(name), request.id) == 1 and victim_holds.find(pool, request.id)
    -- Before the first HSET: a server out of memory refuses a script whose first write adds data.
    if is_patient or hold then redis.call('ZREM', keys.waiting(), request.id) end
    if is_patient then grants.end_patience_hold(pool) end
    if hold then grants.end_victim_hold(pool, hold) end
  end
  for _, pool in ipairs(queue.leave(request, lane)) do dirty_pools.mark(pool) end
end

-- Grant a waiter.
function grants.grant(path, lane, id)
  local request, fields = requests.load(id), {}
  grants.dequeue(request or {id = id}, lane)
  if not request then return end  -- lost
  grants.allocate(path, lane, request, fields)
  requests.save(request, fields)
end

-- Move the freed units of a victim to the hold it left for.
local function settle_victim(request, path, units)
  local pool = path[#path]
  local owner = victims.remove(pool, request.id)
  if request.status == states.preempting then victims.count_units(path, units, -1) end
  if not owner then return end
  redis.call('ZREM', keys.preemption_deadlines(), request.id)
  local hold = victim_holds.find(pool, owner)
  if hold then victim_holds.update_expected(pool, hold, path, units, -1, true) end
end

-- Take back the units of an allocation. The first write is of a kind that a server out of memory accepts.
function grants.take_back(request, is_preempting)
  leases.finish(request.id)
  if request.pool == '' then return end
  local lane, path = lanes.of(request), accounts.path(request.pool, request.component)
  redis.call('ZREM', keys.pool_allocations(request.pool), request.id)
  if path[1].fields.template then templates.touch(path[#path], path[1]) end
  redis.call('HDEL', keys.pool_allocation_records(request.pool), request.id)
  if request.walltime_s then redis.call('ZREM', keys.pool_walltime_ends(request.pool), request.id) end
  if debit(path, lane, -1) then nudges.send() end
  if is_preempting or request.status == states.preempting then settle_victim(request, path, lane.units) end
end
