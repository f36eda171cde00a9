-- Who may pass the owner of the hold of patience: those before it, and those who will have ended before it could start.
-- @use accounts amounts clock lanes parking parking_lookup patience_hold queue_order
-- @keys lane_walltimes lane

local BACKFILL = 32  -- of those in a lane that would end in time, the first in order among so many is taken

-- Among those of a lane that will have ended by then, the first in order: its id and inner number.
local function ended_by(lane, shadow)
  local short = redis.call('ZRANGEBYSCORE', keys.lane_walltimes(lane.id), '-inf',
    amounts.format(math.floor((shadow - clock.now) / 1000)), 'LIMIT', 0, BACKFILL)
  local first, at = nil, nil
  for _, id in ipairs(short) do
    local inner = tonumber(redis.call('ZSCORE', keys.lane(lane.id), id))
    if not at or inner < at then first, at = id, inner end
  end
  return first, at
end

-- Whether somebody of a lane that a hold keeps may go on: all if it is the owner's or stands before it by now, else who ends
-- before the owner could start (`instead`). `at` is the place it is granted by. The owner's start is foreseen once.
function backfill.may_pass(pool, found, owner)
  found.at = found.place
  if found.place <= owner.place then return true end
  local lane = lanes.open(found.id)
  if redis.call('EXISTS', keys.lane_walltimes(lane.id)) == 0 then return false end
  if owner.shadow == nil then owner.shadow = patience_hold.shadow_time(pool, owner) or false end
  local first, inner = nil, nil
  if owner.shadow then first, inner = ended_by(lane, owner.shadow) end
  if not first then return false end
  local path = accounts.path(pool.name, lane.component)
  found.instead, found.at = first, queue_order.queue_score(pool, path[1], inner, lanes.is_in_share(path, lane))
  return true
end

-- Of the lanes a hold keeps that would fit without it, those that may pass its owner.
function backfill.candidates(pool, owner)
  local list = {}
  for _, constraint in ipairs(parking.occupied_constraints(pool)) do
    local id, key = string.match(constraint, '^patience_held|([^|]+)|(.+)$')
    local held = id and parking_lookup.all(pool, constraint, accounts.room('victim_held', accounts.by_id(pool.name, id), pool, key)) or {}
    for _, found in ipairs(held) do
      if backfill.may_pass(pool, found, owner) then list[found.id] = found end
    end
  end
  return list
end
