-- The patience hold of a pool: capacity kept free for a waiter that capacity has blocked for too long
-- (`planner/give_patience_hold` chooses it). Its units count as used for all waiters
-- behind its owner in the queue, except owners of victim holds (`victim_holds`).
-- @use account_updates accounts amounts clock lanes pool_changes queue_order requests
-- @reads pool_walltime_ends
-- @writes pool pool_holds

local EXAMINED = 500  -- allocations examined, at most, to compute the shadow time

-- Return the owner of the patience hold: request, lane, path and queue score; nil if there is none.
function patience_hold.owner(pool)
  if not pool.fields.patience then return nil end
  local request = requests.load(pool.fields.patience)
  if not request then  -- lost; the audit finds its units
    redis.call('HDEL', keys.pool_holds(pool.name), pool.fields.patience)
    redis.call('HDEL', pool.key, 'patience')
    pool.fields.patience = nil
    return nil
  end
  local lane = lanes.of(request)
  local path = accounts.path(pool.name, lane.component)
  local lane_score = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
  return {request = request, lane = lane, path = path, queue_score = queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane))}
end

-- Record as changed the accounts of a path, after the units that the hold keeps there changed.
local function note_change(path)
  local members = {}
  for i = 1, #path - 1 do members[i] = path[i].id end
  pool_changes.add(path[#path].name, members)
end

function patience_hold.open(path, lane, id)
  local pool = path[#path]
  note_change(path)
  account_updates.add(path, lane.units, {'patience_held'}, 1)
  pool.fields.patience = id
  redis.call('HSET', pool.key, 'patience', id)
  redis.call('HSET', keys.pool_holds(pool.name), id, 'patience ' .. amounts.format(clock.now))
end

function patience_hold.close(pool, owner)
  note_change(owner.path)
  account_updates.add(owner.path, owner.lane.units, {'patience_held'}, -1)
  pool.fields.patience = nil
  redis.call('HDEL', pool.key, 'patience')
  redis.call('HDEL', keys.pool_holds(pool.name), owner.request.id)
end

local function fits(free, units)
  for _, free_units in pairs(free) do
    for _, key in ipairs(units.keys) do
      if units.of[key] > free_units[key] then return false end
    end
  end
  return true
end

-- Return the shadow time: the owner could start then if every allocation ends within its walltime. An allocation beyond its
-- walltime may end at any moment. Nil if it is not known.
function patience_hold.shadow_time(pool, owner)
  local units, free = owner.lane.units, {}
  for _, account in ipairs(owner.path) do
    free[account] = {}
    for _, key in ipairs(units.keys) do free[account][key] = accounts.room('limit', account, pool, key) end
  end
  local ends = redis.call('ZRANGE', keys.pool_walltime_ends(pool.name), 0, EXAMINED - 1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local component, units_held = requests.component_and_units(ends[i])
    for _, account in ipairs(accounts.path(pool.name, component)) do
      for _, key in ipairs(free[account] and units_held.keys or {}) do
        if free[account][key] then free[account][key] = free[account][key] + units_held.of[key] end
      end
    end
    if fits(free, units) then return math.max(clock.now, tonumber(ends[i + 1])) end
  end
end
