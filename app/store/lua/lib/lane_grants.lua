-- Looking at one waiter or lane: may it be granted now, and if not, what keeps it.
-- @use accounts backfill clock fair_share_order grants hold_owners lanes parking parking_lookup patience_hold queue_order

-- How much a constraint leaves at present.
function lane_grants.room(pool, constraint)
  if constraint == parking.NEW then return 0 end
  local kind, id, key = string.match(constraint, '^([%l_]+)|([^|]+)|(.+)$')
  return accounts.room(kind, accounts.by_id(pool.name, id), pool, key)
end

local passing = {}  -- pool → those found that may pass the owner of its hold, until somebody is granted

-- Something changed: what was found is found again.
function lane_grants.reset(pool)
  passing[pool.name] = nil
  hold_owners.reset()
end

-- The first in order of the lanes worth a look: those parked on one of these constraints that it has room for, those that may
-- pass the owner of the hold of patience; and of the owners of holds with victims, who are looked at for themselves.
function lane_grants.next_candidate(pool, constraints, owner)
  local best = nil
  for _, constraint in ipairs(constraints) do
    local id, place = parking_lookup.first(pool, constraint, lane_grants.room(pool, constraint))
    if id and (not best or place < best.at) then best = {id = id, place = place, at = place} end
  end
  local owned = hold_owners.next_grantable(pool)
  if owned and (not best or owned.at <= best.at) then best = owned end
  if not owner then return best end
  passing[pool.name] = passing[pool.name] or backfill.candidates(pool, owner)
  for _, found in pairs(passing[pool.name]) do
    if not best or found.at < best.at then best = found end
  end
  return best
end

-- Grant somebody of a lane that was found (true), or park it on what keeps it and say which account that is of.
function lane_grants.grant_or_park(pool, found, owner)
  local lane = lanes.open(found.id)
  local path = accounts.path(pool.name, lane.component)
  local why = not found.who and hold_owners.blocker(path, lane, owner and found.place > owner.place)
  local who = found.who or not why and lanes.head(lane) or why and why.kind == 'patience_held' and found.instead
  if who then
    passing = {}
    hold_owners.reset()
    grants.grant(path, lane, who)
    return true
  end
  local strict = pool.fields.queueing == 'strict' and why.account == 'pool'
  parking.park(pool, lane.id, strict and 'line' or parking.constraint_of(why), strict and 0 or why.need, found.place)
  if owner and passing[pool.name] then
    local again = why.kind == 'patience_held' and {id = found.id, place = found.place}
    passing[pool.name][found.id] = again and backfill.may_pass(pool, again, owner) and again or nil
  end
  return why.account
end

-- What keeps somebody who stands in no queue yet from being granted at once: constraint and need; nil if nothing does.
function lane_grants.find_blocker(path, lane, inner, walltime_s)
  local policy, pool = path[1], path[#path]
  if pool.fields.reviewing or pool.fields.unsettled then return parking.NEW, 0 end
  if parking.any(pool) then fair_share_order.update(pool, policy) end  -- while nobody waited nothing of it was noted
  local place = queue_order.queue_score(pool, policy, inner, lanes.is_in_share(path, lane))
  local owner = patience_hold.owner(pool)
  local why = accounts.blocker(path, lane.units, lane.fixed, owner and place > owner.place)
  if pool.fields.queueing == 'strict' and not (why and why.account ~= 'pool') then
    local first, at = parking_lookup.line_head(pool)
    if why or first and at < place then return 'line', 0 end
  end
  if why and why.kind == 'patience_held' and walltime_s then
    local shadow = patience_hold.shadow_time(pool, owner)
    if shadow and clock.after(walltime_s) <= shadow then return nil end
  end
  if why then return parking.constraint_of(why), why.need end
end
