-- Looking at one waiter or lane: may it be granted now, and if not, what keeps it.
-- @use accounts amounts clock grants holds lanes order parking
-- @keys pool_line pool_needs pool_park lane_walltimes lane

local BACKFILL = 32  -- of those in a lane that would end in time, the first in order among so many is taken

-- How much a constraint leaves at present.
function looks.room(pool, constraint)
  if constraint == parking.NEW then return 0 end
  local kind, id, key = string.match(constraint, '^(%l+)|([^|]+)|(.+)$')
  return accounts.room(kind, accounts.named(pool.name, id), pool, key)
end

-- Among those of a lane that will have ended before the owner of a hold could start, the first in order.
local function backfill(pool, lane, owner)
  if redis.call('EXISTS', keys.lane_walltimes(lane.id)) == 0 then return nil end
  local shadow = holds.shadow(pool, owner)
  if not shadow then return nil end
  local short = redis.call('ZRANGEBYSCORE', keys.lane_walltimes(lane.id), '-inf',
    amounts.whole(math.floor((shadow - clock.now) / 1000)), 'LIMIT', 0, BACKFILL)
  local first, at = nil, nil
  for _, id in ipairs(short) do
    local inner = tonumber(redis.call('ZSCORE', keys.lane(lane.id), id))
    if not at or inner < at then first, at = id, inner end
  end
  return first
end

-- The first in order of those parked on one of these constraints that it has room for, and its place.
function looks.first(pool, constraints)
  local best, at = nil, nil
  for _, constraint in ipairs(constraints) do
    local id, place = parking.first(pool, constraint, looks.room(pool, constraint))
    if id and (not at or place < at) then best, at = id, place end
  end
  return best, at
end

-- Lanes kept by a hold that would fit without it, in order.
function looks.kept(pool)
  local found = {}
  for _, constraint in ipairs(parking.constraints(pool)) do
    local id, key = string.match(constraint, '^held|([^|]+)|(.+)$')
    local needs = id and redis.call('ZRANGEBYSCORE', keys.pool_needs(pool.name, constraint), '-inf',
      amounts.whole(accounts.room('limit', accounts.named(pool.name, id), pool, key))) or {}
    for _, need in ipairs(needs) do
      local here = redis.call('ZRANGE', keys.pool_park(pool.name, constraint, need), 0, -1, 'WITHSCORES')
      for i = 1, #here, 2 do found[#found + 1] = {id = here[i], place = tonumber(here[i + 1])} end
    end
  end
  table.sort(found, function(a, b) return a.place < b.place end)
  return found
end

-- Grant somebody of a lane (true), or park it on what keeps it and say which account that is of.
function looks.at(pool, id, place)
  local lane, owner = lanes.open(id), holds.owner(pool)
  local path = accounts.path(pool.name, lane.component)
  local why = accounts.blocked(path, lane.ask, lane.fixed, owner and place > owner.place)
  local who = not why and lanes.head(lane) or why and why.kind == 'held' and backfill(pool, lane, owner)
  if who then
    grants.waiter(path, lane, who)
    return true
  end
  local strict = pool.is.queueing == 'strict' and why.account == 'pool'
  parking.park(pool, id, strict and 'line' or parking.constraint(why), strict and 0 or why.need, place)
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
