-- The hold of patience: capacity kept free for a waiter who was passed for too long. It counts as used against those behind its
-- owner in the queue, but for owners of holds with victims (`victim_holds`).
-- @use account_updates accounts amounts clock lanes queue_order requests
-- @keys pool_holds pool_walltime_ends

local EXAMINED = 500  -- running allocations looked at, at most, to foresee when an owner can start

-- Who has the pool's hold of patience: request, lane, path and place; nil if nobody.
function patience_hold.owner(pool)
  if not pool.fields.patience then return nil end
  local request = requests.load(pool.fields.patience)
  if not request then  -- lost; what was kept for it is found by the audit
    redis.call('HDEL', keys.pool_holds(pool.name), pool.fields.patience)
    redis.call('HDEL', pool.key, 'patience')
    pool.fields.patience = nil
    return nil
  end
  local lane = lanes.of(request)
  local path = accounts.path(pool.name, lane.component)
  local inner = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
  return {request = request, lane = lane, path = path, place = queue_order.queue_score(pool, path[1], inner, lanes.is_in_share(path, lane))}
end

function patience_hold.open(path, lane, id)
  local pool = path[#path]
  account_updates.add(path, lane.units, {'patience_held'}, 1)
  pool.fields.patience = id
  redis.call('HSET', pool.key, 'patience', id)
  redis.call('HSET', keys.pool_holds(pool.name), id, 'patience ' .. amounts.format(clock.now))
end

function patience_hold.close(pool, owner)
  account_updates.add(owner.path, owner.lane.units, {'patience_held'}, -1)
  pool.fields.patience = nil
  redis.call('HDEL', pool.key, 'patience')
  redis.call('HDEL', keys.pool_holds(pool.name), owner.request.id)
end

local function roomy(room, units)
  for _, left in pairs(room) do
    for _, key in ipairs(units.keys) do
      if units.of[key] > left[key] then return false end
    end
  end
  return true
end

-- When the owner could start if every promised walltime is kept; what overstays its promise may end at any moment. Nil if unknown.
function patience_hold.shadow_time(pool, owner)
  local units, room = owner.lane.units, {}
  for _, account in ipairs(owner.path) do
    room[account] = {}
    for _, key in ipairs(units.keys) do room[account][key] = accounts.room('limit', account, pool, key) end
  end
  local ends = redis.call('ZRANGE', keys.pool_walltime_ends(pool.name), 0, EXAMINED - 1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local component, held = requests.component_and_units(ends[i])
    for _, account in ipairs(accounts.path(pool.name, component)) do
      for _, key in ipairs(room[account] and held.keys or {}) do
        if room[account][key] then room[account][key] = room[account][key] + held.of[key] end
      end
    end
    if roomy(room, units) then return math.max(clock.now, tonumber(ends[i + 1])) end
  end
end
