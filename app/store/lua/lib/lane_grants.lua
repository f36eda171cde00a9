-- Judge one waiter or lane: grant it, or find the constraint that blocks it.
-- @use accounts backfill clock fair_share_order grants hold_owners lanes parking parking_lookup patience_hold queue_order
-- @writes pool_satisfaction

-- Return how many units a constraint leaves now.
function lane_grants.room(pool, constraint)
  if constraint == parking.NEW then return 0 end
  local kind, id, key = string.match(constraint, '^([%l_]+)|([^|]+)|(.+)$')
  return accounts.room(kind, accounts.by_id(pool.name, id), pool, key)
end

local backfill_by_pool = {}  -- pool → candidates for backfill, until the next grant

-- Forget the cached candidates of a pool after a change.
function lane_grants.reset(pool)
  backfill_by_pool[pool.name] = nil
  hold_owners.reset()
end

-- Return the first candidate in queue order: a lane parked on one of these constraints that has room now, a lane that may pass
-- the owner of the patience hold, or an owner of a victim hold.
function lane_grants.next_candidate(pool, constraints, owner)
  local best = nil
  for _, constraint in ipairs(constraints) do
    local id, queue_score = parking_lookup.first(pool, constraint, lane_grants.room(pool, constraint))
    if id and (not best or queue_score < best.grant_score) then best = {id = id, queue_score = queue_score, grant_score = queue_score} end
  end
  local owner_candidate = hold_owners.next_grantable(pool)
  if owner_candidate and (not best or owner_candidate.grant_score <= best.grant_score) then best = owner_candidate end
  if not owner then return best end
  backfill_by_pool[pool.name] = backfill_by_pool[pool.name] or backfill.candidates(pool, owner)
  for _, candidate in pairs(backfill_by_pool[pool.name]) do
    if not best or candidate.grant_score < best.grant_score then best = candidate end
  end
  return best
end

-- Grant a waiter of the candidate and return true; or park its lane on the blocking constraint and return the account of the constraint.
function lane_grants.grant_or_park(pool, candidate, owner)
  local lane = lanes.open(candidate.id)
  local path = accounts.path(pool.name, lane.component)
  local blocker = not candidate.request_id and hold_owners.blocker(path, lane, owner and candidate.queue_score > owner.queue_score)
  local request_id = candidate.request_id or not blocker and lanes.head(lane) or blocker and blocker.kind == 'patience_held' and candidate.substitute_id
  if request_id then
    backfill_by_pool = {}
    hold_owners.reset()
    grants.grant(path, lane, request_id)
    return true
  end
  local strict = pool.fields.queueing == 'strict' and blocker.account == 'pool'
  parking.park(pool, lane.id, strict and 'line' or parking.constraint_of(blocker), strict and 0 or blocker.need, candidate.queue_score)
  local was_backfill = (backfill_by_pool[pool.name] or {})[candidate.id]
  if was_backfill or blocker.kind == 'patience_held' then backfill_by_pool[pool.name] = nil end
  return blocker.account
end

local function find_blocker(path, lane, lane_score, walltime_s)
  local policy, pool = path[1], path[#path]
  if pool.fields.reviewing or pool.fields.unsettled then return parking.NEW, 0 end
  if policy.is_planned and lanes.has_waiters(lane.component) then return parking.NEW, 0 end  -- earlier waiters have to be judged in this pool as well
  if fair_share_order.applies(pool) and lanes.any_attached(pool) then fair_share_order.update(pool, policy) end  -- scores are not stored while a pool has no waiters
  local queue_score = queue_order.queue_score(pool, policy, lane_score, lanes.is_in_share(path, lane))
  local owner = pool.fields.patience and patience_hold.owner(pool) or nil
  local blocker = accounts.blocker(path, lane.units, lane.fixed, owner and queue_score > owner.queue_score)
  if pool.fields.queueing == 'strict' and not (blocker and blocker.account ~= 'pool') then
    local first, head_score = parking_lookup.line_head(pool)
    if blocker or first and head_score < queue_score then return 'line', 0 end
  end
  if blocker and blocker.kind == 'patience_held' and walltime_s then
    local shadow = patience_hold.shadow_time(pool, owner)
    if shadow and clock.after(walltime_s) <= shadow then return nil end
  end
  if blocker then return parking.constraint_of(blocker), blocker.need end
end

-- Return the constraint that blocks a request before it is queued, and the need; nil if it can be granted now. The score of a
-- planned policy is stored only during this call.
function lane_grants.find_blocker(path, lane, lane_score, walltime_s)
  local constraint, need = find_blocker(path, lane, lane_score, walltime_s)
  if path[1].is_planned and fair_share_order.applies(path[#path]) then redis.call('ZREM', keys.pool_satisfaction(path[#path].name), lane.component) end
  return constraint, need
end
