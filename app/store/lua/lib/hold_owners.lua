-- Owners of victim holds: the other holds that count against each owner, and the owner that can be granted now. An earlier hold
-- counts with all its units. A later hold counts only with the units that its own victims have freed.
-- @use accounts lanes queue_order victim_holds

-- Return a function: position of a hold → units of a key at an account that the other holds of the pool keep from its owner.
local function blocked_units(list, account, key)
  local earlier_sum, later_sum, index = 0, 0, 0
  local function held_units(hold) return hold.account_keys[account.key] and victim_holds.units_held(hold, account, key) or 0 end
  local function later_units(hold) return math.min(held_units(hold), hold.account_keys[account.key] and victim_holds.units_freed(hold, account, key) or 0) end
  for _, hold in ipairs(list) do later_sum = later_sum + later_units(hold) end
  return function(position)
    while index < position do
      index = index + 1
      later_sum = later_sum - later_units(list[index])
      if index > 1 then earlier_sum = earlier_sum + held_units(list[index - 1]) end
    end
    return earlier_sum + later_sum
  end
end

local function is_blocked(pool, hold, index, sums, list)
  for _, account in ipairs(hold.path) do
    for _, key in ipairs(hold.lane.units.keys) do
      local place = account.id .. '|' .. key
      sums[place] = sums[place] or blocked_units(list, account, key)
      if hold.lane.units.of[key] + sums[place](index) > accounts.room('limit', account, pool, key) then return true end
    end
  end
end

-- True if the fixed share of a hold's owner is used up, so that the hold can no longer be filled.
function hold_owners.is_unfillable(pool, hold)
  for _, key in ipairs(hold.lane.fixed and hold.lane.units.keys or {}) do
    if pool.limit[key] and accounts.room('fixed', hold.path[1], pool, key) < hold.lane.units.of[key] then return true end
  end
  return false
end

local next_owner = {}  -- pool → candidate or false, until the next grant

function hold_owners.reset() next_owner = {} end

local function first(pool)
  local list, sums, best = victim_holds.list(pool), {}, nil
  for index, hold in ipairs(list) do
    if not is_blocked(pool, hold, index, sums, list) and not hold_owners.is_unfillable(pool, hold) then
      local queue_score = queue_order.queue_score(pool, hold.path[1], hold.lane_score, lanes.is_in_share(hold.path, hold.lane))
      if not best or queue_score < best.grant_score then best = {id = hold.lane.id, request_id = hold.id, queue_score = queue_score, grant_score = queue_score} end
    end
  end
  return best
end

-- Return the first owner in queue order that can be granted now; nil if none can.
function hold_owners.next_grantable(pool)
  if not pool.fields.victim_holds then return nil end
  if next_owner[pool.name] == nil then next_owner[pool.name] = first(pool) or false end
  return next_owner[pool.name] or nil
end

-- Run a function while the units of a hold (nil: of none) do not count along a path. Return its result.
function hold_owners.without_hold(hold, path, lane, run)
  local function count(sign)
    for _, account in ipairs(path) do
      for _, key in ipairs(hold and lane.units.keys or {}) do
        account.victim_held[key] = (account.victim_held[key] or 0) + sign * victim_holds.units_held(hold, account, key)
      end
    end
  end
  count(-1)
  local answer = run()
  count(1)
  return answer
end

-- Return the constraint that blocks a lane. With strict queueing, a victim hold of the head does not count for the head: only a
-- limit or capacity blocks it. If capacity blocks the head, it blocks the lanes behind it, too.
function hold_owners.blocker(path, lane, bound)
  local pool = path[#path]
  local hold = pool.fields.victim_holds and pool.fields.queueing == 'strict' and victim_holds.find(pool, (lanes.head(lane)))
  return hold_owners.without_hold(hold, path, lane, function() return accounts.blocker(path, lane.units, lane.fixed, bound) end)
end

-- Return the holds that can no longer be filled.
function hold_owners.unfillable(pool)
  local unfillable = {}
  for _, hold in ipairs(victim_holds.list(pool)) do
    if hold_owners.is_unfillable(pool, hold) then unfillable[#unfillable + 1] = hold end
  end
  return unfillable
end
