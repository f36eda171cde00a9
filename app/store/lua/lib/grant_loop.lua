-- The grant loop after a change. It examines every dirty pool, and grants in queue order all that can be granted, within a
-- budget. One examination of a pool is called a pass here.
-- @use accounts crossings dirty_pools grants hold_owners lane_grants lanes parking parking_lookup patience_hold work_budget
-- @reads orphaned_lanes
-- @writes pool unfinished

local budget, unfinished, is_first
local pools_in_pass = {}  -- pools with a pass under way, nested
local pass

-- True if the budget is used up, or while lanes cross. Else take one decision from the budget, or more if there are many victim
-- holds. The first decision of a call is always made.
local function is_spent(pool)
  if budget <= 0 or pool.fields.crossing or not is_first and work_budget.is_used_up() then return true end
  is_first = false
  budget = budget - 1 - math.floor((tonumber(pool.fields.victim_holds) or 0) / 10)
  return false
end

-- Mark that the budget ended before the pass did: the next script, or the next cleanup, resumes it.
local function mark_unsettled(pool)
  unfinished = true
  pool.fields.unsettled = '1'
  redis.call('HSET', pool.key, 'unsettled', '1')
  redis.call('SADD', keys.unfinished(), pool.name)
end

-- Run the pass of the first dirty pool that a lane prefers to this pool. Return whether there was such a pool.
local function grant_preferred_pool(pool, id)
  local dirty = dirty_pools.all()
  if next(dirty) == nil then return false end
  for _, name in ipairs(lanes.pools(lanes.open(id))) do
    if name == pool.name then return false end
    if dirty[name] and not pools_in_pass[name] then
      pass(accounts.pool(name))
      return true
    end
  end
end

-- Grant in queue order. The patience hold ends as soon as a limit blocks its owner.
local function best_effort(pool, set)
  local constraints = parking_lookup.occupied_constraints(pool, set)
  lane_grants.reset(pool)
  while true do
    local owner = patience_hold.owner(pool)
    local blocker = owner and accounts.blocker(owner.path, owner.lane.units, owner.lane.fixed, false)
    if blocker and blocker.account ~= 'pool' then
      grants.end_patience_hold(pool)
      owner, constraints = nil, parking_lookup.occupied_constraints(pool)
    end
    local candidate = lane_grants.next_candidate(pool, constraints, owner)
    if not candidate then return true end
    if not grant_preferred_pool(pool, candidate.id) then
      if is_spent(pool) then return false end
      lane_grants.grant_or_park(pool, candidate, owner)
    end
  end
end

-- Grant with strict queueing. The line is the queue of the lanes that no limit blocks. Lanes with room under their limit return
-- to the line. Then grant from the head of the line on, until capacity blocks the head. Only owners of victim holds pass it.
local function strict(pool, set)
  lane_grants.reset(pool)
  for _, constraint in ipairs(parking_lookup.occupied_constraints(pool, set)) do
    while constraint ~= 'line' do
      local id, queue_score = parking_lookup.first(pool, constraint, lane_grants.room(pool, constraint))
      if not id then break end
      if is_spent(pool) then return false end
      parking.park(pool, id, 'line', 0, queue_score)
    end
  end
  local blocked_lane = nil
  while true do
    local first, queue_score = parking_lookup.line_head(pool)
    local candidate = first and first ~= blocked_lane and {id = first, queue_score = queue_score}
    local owner_candidate = hold_owners.next_grantable(pool)
    if owner_candidate and (not candidate or owner_candidate.grant_score < candidate.queue_score) then candidate = owner_candidate end
    if not candidate then return true end
    if not grant_preferred_pool(pool, candidate.id) then
      if is_spent(pool) then return false end
      if lane_grants.grant_or_park(pool, candidate) == 'pool' then blocked_lane, budget = candidate.id, math.max(budget, 0) + 1 end  -- nothing was granted, and this happens once a pass
    end
  end
end

local function grant_in_order(pool)
  local set, was_unsettled = dirty_pools.constraints(pool.name) or {}, pool.fields.unsettled
  dirty_pools.clear(pool.name)
  if pool.fields.reviewing then
    unfinished = true
    return
  end
  if pool.fields.crossing and not crossings.resume(pool) then return mark_unsettled(pool) end
  for _, hold in ipairs(pool.fields.victim_holds and hold_owners.unfillable(pool) or {}) do grants.end_victim_hold(pool, hold) end
  local grant_all = pool.fields.queueing == 'strict' and strict or best_effort
  if not grant_all(pool, not was_unsettled and set or nil) or pool.fields.crossing then return mark_unsettled(pool) end
  if was_unsettled then
    pool.fields.unsettled = nil
    redis.call('HDEL', pool.key, 'unsettled')
  end
end

function pass(pool)
  pools_in_pass[pool.name] = true
  grant_in_order(pool)
  pools_in_pass[pool.name] = nil
end

-- Run the pass of every dirty pool. Return whether the budget ended first.
function grant_loop.run(count)
  budget, unfinished, is_first = count, false, true
  for name in function() return next(dirty_pools.all()) end do pass(accounts.pool(name)) end
  return unfinished
end

-- Run the passes; return 1 if any work is unfinished, also of earlier calls, else 0.
function grant_loop.settle(count)
  return (grant_loop.run(count) or redis.call('EXISTS', keys.unfinished(), keys.orphaned_lanes()) > 0) and 1 or 0
end
