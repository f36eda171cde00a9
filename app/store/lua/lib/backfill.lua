-- Backfill behind a patience hold (EASY): a request may pass the owner of the hold if it ends before the owner could start.
-- @use accounts amounts clock lanes parking parking_lookup parking_subtrees parking_tree patience_hold queue_order
-- @reads lane lane_walltimes

local BACKFILL = 32  -- per lane, the most requests with a short enough walltime that are compared; per slot, the most lanes

-- Return the first request of a lane that ends before the shadow time, and its lane score.
local function first_to_end_before(lane, shadow)
  local requests_in_time = redis.call('ZRANGEBYSCORE', keys.lane_walltimes(lane.id), '-inf',
    amounts.format(math.floor((shadow - clock.now) / 1000)), 'LIMIT', 0, BACKFILL)
  local first_id, first_score = nil, nil
  for _, id in ipairs(requests_in_time) do
    local lane_score = tonumber(redis.call('ZSCORE', keys.lane(lane.id), id))
    if not first_score or lane_score < first_score then first_id, first_score = id, lane_score end
  end
  return first_id, first_score
end

-- True if a lane that only the patience hold blocks may be granted: it is the owner's lane or stands before it in the queue, or
-- one of its requests ends before the shadow time (`substitute_id`). Set `grant_score`, the queue score by which the lane is
-- granted. The shadow time is computed once per owner.
function backfill.may_pass(pool, candidate, owner)
  candidate.grant_score = candidate.queue_score
  if candidate.queue_score <= owner.queue_score then return true end
  local lane = lanes.open(candidate.id)
  if redis.call('EXISTS', keys.lane_walltimes(lane.id)) == 0 then return false end
  if owner.shadow == nil then owner.shadow = patience_hold.shadow_time(pool, owner) or false end
  local first_id, lane_score = nil, nil
  if owner.shadow then first_id, lane_score = first_to_end_before(lane, owner.shadow) end
  if not first_id then return false end
  local path = accounts.path(pool.name, lane.component)
  candidate.substitute_id, candidate.grant_score = first_id, queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane))
  return true
end

-- Return the lanes of a slot that may pass the owner: the first in queue order, and lanes with a waiter that ends in time.
local function lanes_of_slot(pool, slot, room, owner)
  local ids, backfill_slot = {parking_tree.first(pool, slot, room)}, parking.BACKFILL .. slot
  ids[2] = nil  -- the score of the first lane
  if not parking_tree.any(pool, backfill_slot) then return ids end
  if owner.shadow == nil then owner.shadow = patience_hold.shadow_time(pool, owner) or false end
  if not owner.shadow then return ids end
  local seconds = math.floor((owner.shadow - clock.now) / 1000)
  for _, id in ipairs(parking_subtrees.list(pool, backfill_slot, room, seconds, BACKFILL)) do ids[#ids + 1] = id end
  return ids
end

-- Return the lanes that only the patience hold blocks and that may pass its owner. If there are very many, return some of each
-- slot.
function backfill.candidates(pool, owner)
  local candidates = {}
  for _, constraint in ipairs(parking_lookup.occupied_constraints(pool)) do
    local id, key = string.match(constraint, '^patience_held|([^|]+)|(.+)$')
    local room = id and accounts.room('victim_held', accounts.by_id(pool.name, id), pool, key)
    for _, slot in ipairs(id and parking_lookup.slots(pool, constraint, room) or {}) do
      for _, lane_id in ipairs(lanes_of_slot(pool, slot, room, owner)) do
        local lane = lanes.open(lane_id)
        local path, _, lane_score = accounts.path(pool.name, lane.component), lanes.head(lane)
        local candidate = {id = lane_id, queue_score = queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane))}
        if backfill.may_pass(pool, candidate, owner) then candidates[lane_id] = candidate end
      end
    end
  end
  return candidates
end
