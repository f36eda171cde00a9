-- Owners of holds with victims: whom of the others' holds binds them, and whether they can be granted now. An earlier hold binds
-- by all it keeps; a later one only by what its own victims have brought, so that each is served by those who leave for it.
-- @use accounts lanes queue_order victim_holds

-- What each hold of a pool is kept from by the others at an account, in order: a function for one key at one account.
local function others(list, account, key)
  local earlier, later, at = 0, 0, 0
  local function binding(hold) return hold.on[account.key] and victim_holds.units_held(hold, account, key) or 0 end
  local function late(hold) return math.min(binding(hold), hold.on[account.key] and victim_holds.units_freed(hold, account, key) or 0) end
  for _, hold in ipairs(list) do later = later + late(hold) end
  return function(upto)
    while at < upto do
      at = at + 1
      later = later - late(list[at])
      if at > 1 then earlier = earlier + binding(list[at - 1]) end
    end
    return earlier + later
  end
end

local function short(pool, hold, at, seen, list)
  for _, account in ipairs(hold.path) do
    for _, key in ipairs(hold.lane.units.keys) do
      local where = account.id .. '|' .. key
      seen[where] = seen[where] or others(list, account, key)
      if hold.lane.units.of[key] + seen[where](at) > accounts.room('limit', account, pool, key) then return true end
    end
  end
end

-- Whether a fixed owner's fixed share is used up by now; then it keeps nothing any more.
function hold_owners.is_unfillable(pool, hold)
  for _, key in ipairs(hold.lane.fixed and hold.lane.units.keys or {}) do
    if pool.limit[key] and accounts.room('fixed', hold.path[1], pool, key) < hold.lane.units.of[key] then return true end
  end
  return false
end

local next_one = {}  -- pool → who was found, false for nobody, until somebody is granted

function hold_owners.reset() next_one = {} end

local function first(pool)
  local list, seen, best = victim_holds.list(pool), {}, nil
  for at, hold in ipairs(list) do
    if not short(pool, hold, at, seen, list) and not hold_owners.is_unfillable(pool, hold) then
      local place = queue_order.queue_score(pool, hold.path[1], hold.inner, lanes.is_in_share(hold.path, hold.lane))
      if not best or place < best.at then best = {id = hold.lane.id, who = hold.id, place = place, at = place} end
    end
  end
  return best
end

-- The first in order of the queue of those owners who can be granted now; nil if none can.
function hold_owners.next_grantable(pool)
  if not pool.fields.victim_holds then return nil end
  if next_one[pool.name] == nil then next_one[pool.name] = first(pool) or false end
  return next_one[pool.name] or nil
end

-- What a function answers while a hold, if there is one, counts for nothing along its owner's path.
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

-- What keeps a lane from being granted. With strict queueing its head may be the owner of a hold, which counts for nothing then:
-- it is a real limit, or capacity, that keeps it, and by capacity it keeps those behind it.
function hold_owners.blocker(path, lane, bound)
  local pool = path[#path]
  local hold = pool.fields.victim_holds and pool.fields.queueing == 'strict' and victim_holds.find(pool, (lanes.head(lane)))
  return hold_owners.without_hold(hold, path, lane, function() return accounts.blocker(path, lane.units, lane.fixed, bound) end)
end

-- The holds of those whose fixed share is used up.
function hold_owners.unfillable(pool)
  local spent = {}
  for _, hold in ipairs(victim_holds.list(pool)) do
    if hold_owners.is_unfillable(pool, hold) then spent[#spent + 1] = hold end
  end
  return spent
end
