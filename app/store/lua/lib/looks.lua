-- Looking at one waiter or lane: may it be granted now, and if not, what keeps it.
-- @use accounts amounts clock grants holds lanes order owners parking
-- @keys pool_line pool_needs pool_park lane_walltimes lane

local BACKFILL = 32  -- of those in a lane that would end in time, the first in order among so many is taken

-- How much a constraint leaves at present.
function looks.room(pool, constraint)
  if constraint == parking.NEW then return 0 end
  local kind, id, key = string.match(constraint, '^(%l+)|([^|]+)|(.+)$')
  return accounts.room(kind, accounts.named(pool.name, id), pool, key)
end

-- Among those of a lane that will have ended by then, the first in order: its id and inner number.
local function ended_by(lane, shadow)
  local short = redis.call('ZRANGEBYSCORE', keys.lane_walltimes(lane.id), '-inf',
    amounts.whole(math.floor((shadow - clock.now) / 1000)), 'LIMIT', 0, BACKFILL)
  local first, at = nil, nil
  for _, id in ipairs(short) do
    local inner = tonumber(redis.call('ZSCORE', keys.lane(lane.id), id))
    if not at or inner < at then first, at = id, inner end
  end
  return first, at
end

local passing = {}  -- pool → those found that may pass the owner of its hold, until somebody is granted

-- Something changed: what was found is found again.
function looks.afresh(pool)
  passing[pool.name] = nil
  owners.afresh()
end

-- Whether somebody of a lane that a hold keeps may go on: all if it is the owner's or stands before it by now, else who ends
-- before the owner could start (`instead`). `at` is the place it is granted by. The owner's start is foreseen once.
local function passes_owner(pool, found, owner)
  found.at = found.place
  if found.place <= owner.place then return true end
  local lane = lanes.open(found.id)
  if redis.call('EXISTS', keys.lane_walltimes(lane.id)) == 0 then return false end
  if owner.shadow == nil then owner.shadow = holds.shadow(pool, owner) or false end
  local first, inner = nil, nil
  if owner.shadow then first, inner = ended_by(lane, owner.shadow) end
  if not first then return false end
  local path = accounts.path(pool.name, lane.component)
  found.instead, found.at = first, order.place(pool, path[1], inner, lanes.inshare(path, lane))
  return true
end

-- Of the lanes a hold keeps that would fit without it, those that may pass its owner.
local function passers(pool, owner)
  local list = {}
  for _, constraint in ipairs(parking.constraints(pool)) do
    local id, key = string.match(constraint, '^held|([^|]+)|(.+)$')
    local needs = id and redis.call('ZRANGEBYSCORE', keys.pool_needs(pool.name, constraint), '-inf',
      amounts.whole(accounts.room('cleared', accounts.named(pool.name, id), pool, key))) or {}
    for _, need in ipairs(needs) do
      local here = redis.call('ZRANGE', keys.pool_park(pool.name, constraint, need), 0, -1, 'WITHSCORES')
      for i = 1, #here, 2 do
        local found = {id = here[i], place = tonumber(here[i + 1])}
        if passes_owner(pool, found, owner) then list[found.id] = found end
      end
    end
  end
  return list
end

-- The first in order of the lanes worth a look: those parked on one of these constraints that it has room for, those that may
-- pass the owner of the hold of patience; and of the owners of holds with victims, who are looked at for themselves.
function looks.first(pool, constraints, owner)
  local best = nil
  for _, constraint in ipairs(constraints) do
    local id, place = parking.first(pool, constraint, looks.room(pool, constraint))
    if id and (not best or place < best.at) then best = {id = id, place = place, at = place} end
  end
  local owned = owners.next(pool)
  if owned and (not best or owned.at <= best.at) then best = owned end
  if not owner then return best end
  passing[pool.name] = passing[pool.name] or passers(pool, owner)
  for _, found in pairs(passing[pool.name]) do
    if not best or found.at < best.at then best = found end
  end
  return best
end

-- Grant somebody of a lane that was found (true), or park it on what keeps it and say which account that is of.
function looks.at(pool, found, owner)
  local lane = lanes.open(found.id)
  local path = accounts.path(pool.name, lane.component)
  local why = not found.who and accounts.blocked(path, lane.ask, lane.fixed, owner and found.place > owner.place)
  local who = found.who or not why and lanes.head(lane) or why and why.kind == 'held' and found.instead
  if who then
    passing = {}
    owners.afresh()
    grants.waiter(path, lane, who)
    return true
  end
  local strict = pool.is.queueing == 'strict' and why.account == 'pool'
  parking.park(pool, lane.id, strict and 'line' or parking.constraint(why), strict and 0 or why.need, found.place)
  if owner and passing[pool.name] then
    local again = why.kind == 'held' and {id = found.id, place = found.place}
    passing[pool.name][found.id] = again and passes_owner(pool, again, owner) and again or nil
  end
  return why.account
end

-- What keeps somebody who stands in no queue yet from being granted at once: constraint and need; nil if nothing does.
function looks.keeps(path, lane, inner, walltime_s)
  local policy, pool = path[1], path[#path]
  if pool.is.reviewing or pool.is.unsettled then return parking.NEW, 0 end
  local place = order.place(pool, policy, inner, lanes.inshare(path, lane))
  local owner = holds.owner(pool)
  local why = accounts.blocked(path, lane.ask, lane.fixed, owner and place > owner.place)
  if pool.is.queueing == 'strict' and not (why and why.account ~= 'pool') then
    local first = redis.call('ZRANGE', keys.pool_line(pool.name), 0, 0, 'WITHSCORES')
    if why or first[1] and tonumber(first[2]) < place then return 'line', 0 end
  end
  if why and why.kind == 'held' and walltime_s then
    local shadow = holds.shadow(pool, owner)
    if shadow and clock.after(walltime_s) <= shadow then return nil end
  end
  if why then return parking.constraint(why), why.need end
end
