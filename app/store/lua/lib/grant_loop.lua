-- The pass after a change: in every pool it stirred, grant in order whatever can be granted, within a budget of looks.
-- @use accounts dirty_pools grants hold_owners lane_grants lanes parking parking_lookup patience_hold
-- @keys unfinished orphaned_lanes

local budget, unfinished
local passing = {}  -- pools a pass is going through, one within the other
local pass

-- A look costs one, and more where many holds have to be weighed; whatever it costs, the first of a call is made.
local function spent(pool)
  if budget <= 0 then return true end
  budget = budget - 1 - math.floor((tonumber(pool.fields.victim_holds) or 0) / 10)
  return false
end

-- Work is left: the next script, or the next round of the housekeeping, goes on.
local function unsettled(pool)
  unfinished = true
  pool.fields.unsettled = '1'
  redis.call('HSET', pool.key, 'unsettled', '1')
  redis.call('SADD', keys.unfinished(), pool.name)
end

-- Stirred pools that a lane prefers to this one have their pass first; says whether there was one.
local function better_first(pool, id)
  local stirred = dirty_pools.all()
  if next(stirred) == nil then return false end
  for _, name in ipairs(lanes.pools(lanes.open(id).component)) do
    if name == pool.name then return false end
    if stirred[name] and not passing[name] then
      pass(accounts.pool(name))
      return true
    end
  end
end

-- In order, whoever can be granted; a hold ends as soon as a limit keeps its owner.
local function best_effort(pool, set)
  local constraints = parking.occupied_constraints(pool, set)
  lane_grants.reset(pool)
  while true do
    local owner = patience_hold.owner(pool)
    local why = owner and accounts.blocker(owner.path, owner.lane.units, owner.lane.fixed, false)
    if why and why.account ~= 'pool' then
      grants.end_patience_hold(pool)
      owner, constraints = nil, parking.occupied_constraints(pool)
    end
    local found = lane_grants.next_candidate(pool, constraints, owner)
    if not found then return true end
    if not better_first(pool, found.id) then
      if spent(pool) then return false end
      lane_grants.grant_or_park(pool, found, owner)
    end
  end
end

-- Strict: those a limit kept come back into the line when it has room; then the first of the line, until capacity keeps one,
-- whom only owners of holds with victims pass.
local function strict(pool, set)
  lane_grants.reset(pool)
  for _, constraint in ipairs(parking.occupied_constraints(pool, set)) do
    while constraint ~= 'line' do
      local id, place = parking_lookup.first(pool, constraint, lane_grants.room(pool, constraint))
      if not id then break end
      if spent(pool) then return false end
      parking.park(pool, id, 'line', 0, place)
    end
  end
  local stuck = nil
  while true do
    local first, at = parking_lookup.line_head(pool)
    local found = first and first ~= stuck and {id = first, place = at}
    local served = hold_owners.next_grantable(pool)
    if served and (not found or served.at < found.place) then found = served end
    if not found then return true end
    if not better_first(pool, found.id) then
      if spent(pool) then return false end
      if lane_grants.grant_or_park(pool, found) == 'pool' then stuck, budget = found.id, math.max(budget, 0) + 1 end  -- a look that moved nobody, and is the only one
    end
  end
end

local function grant_in_order(pool)
  local set, all = dirty_pools.constraints(pool.name) or {}, pool.fields.unsettled
  dirty_pools.clear(pool.name)
  if pool.fields.reviewing then
    unfinished = true
    return
  end
  for _, hold in ipairs(pool.fields.victim_holds and hold_owners.unfillable(pool) or {}) do grants.end_victim_hold(pool, hold) end
  local through = pool.fields.queueing == 'strict' and strict or best_effort
  if not through(pool, not all and set or nil) then return unsettled(pool) end
  if all then
    pool.fields.unsettled = nil
    redis.call('HDEL', pool.key, 'unsettled')
  end
end

function pass(pool)
  passing[pool.name] = true
  grant_in_order(pool)
  passing[pool.name] = nil
end

-- Go through every stirred pool. Says whether a pass was not finished.
function grant_loop.run(count)
  budget, unfinished = count, false
  local name = next(dirty_pools.all())
  while name do
    pass(accounts.pool(name))
    name = next(dirty_pools.all())
  end
  return unfinished
end

-- The same, and whether anything at all is left for a next call, be it of an earlier one: 1 or 0.
function grant_loop.settle(count)
  return (grant_loop.run(count) or redis.call('EXISTS', keys.unfinished(), keys.orphaned_lanes()) > 0) and 1 or 0
end
