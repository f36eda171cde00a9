-- The repair of the lanes of a pool, in parts: it deletes the slots of all constraints, then detaches all lanes. The recheck that
-- follows attaches them again.
-- @use lanes parking parking_subtrees work_budget
-- @reads pool_parked
-- @writes pool_blocked_since pool_in_share pool_lanes pool_parking_counts pool_strict_line pool_unfinished

local PAGE = 20

-- Begin a rebuild. The caller starts a recheck.
function parking_rebuild.start(pool) redis.call('HSET', keys.pool_unfinished(pool.name), 'rebuild', 'slots') end

-- Delete the slots of all constraints. Return false if the work budget ended first.
local function clear_slots(pool)
  for _, constraint in ipairs(redis.call('HKEYS', keys.pool_parking_counts(pool.name))) do
    if not parking_subtrees.clear(pool, constraint, parking.BACKFILL) then return false end
    redis.call('HDEL', keys.pool_parking_counts(pool.name), constraint)
  end
  return true
end

-- Detach all lanes. Return false if the work budget ended first.
local function detach_lanes(pool)
  local page = {'0'}
  repeat
    page = redis.call('HSCAN', keys.pool_parked(pool.name), page[1], 'COUNT', PAGE)
    for i = 1, #page[2], 2 do
      lanes.detach(pool, lanes.open(page[2][i]))
      if work_budget.is_used_up() then return false end
    end
  until page[1] == '0'
  return redis.call('EXISTS', keys.pool_parked(pool.name)) == 0
end

-- Continue a rebuild. Return true if it is done, or if there was none.
function parking_rebuild.step(pool)
  local work_key = keys.pool_unfinished(pool.name)
  local stage = redis.call('HGET', work_key, 'rebuild')
  if not stage then return true end
  if stage == 'slots' then
    if not clear_slots(pool) then return false end
    redis.call('HSET', work_key, 'rebuild', 'lanes')
  end
  if not detach_lanes(pool) then return false end
  redis.call('UNLINK', keys.pool_parking_counts(pool.name), keys.pool_lanes(pool.name), keys.pool_strict_line(pool.name), keys.pool_in_share(pool.name),
    keys.pool_blocked_since(pool.name))
  redis.call('HDEL', work_key, 'rebuild')
  return true
end
