-- Give the pool's hold of patience to the first in order who has been blocked by capacity for too long, if nobody has it.
-- @use accounts amounts clock lanes parking patience_hold queue_order requests
-- @keys lane pool_lanes
-- @args now pool
-- @reply given id
-- @reply nobody

clock.start(args.now)
local pool = accounts.pool(args.pool)
local lost = pool and pool.fields.patience_s and pool.fields.queueing ~= 'strict' and not pool.fields.patience
  and not pool.fields.reviewing and not pool.fields.unsettled
if not lost then return reply.nobody() end
local since_ms = clock.now - tonumber(pool.fields.patience_s) * 1000

local PAGE = 16

-- The first of a lane who has waited that long: its head, else of each class the oldest. Id and inner number.
local function overdue(lane)
  for class = const.CLASSES - 1, 0, -1 do
    local from, more = amounts.format(queue_order.lane_score(class, 0)), true
    while more do  -- whose way is being cleared has a hold already; of the others the first few count, as the rest is younger
      local oldest = redis.call('ZRANGEBYSCORE', keys.lane(lane.id), from, '(' .. amounts.format(queue_order.lane_score(class, const.AGES)),
        'WITHSCORES', 'LIMIT', 0, PAGE)
      more = #oldest == 2 * PAGE
      for i = 1, #oldest, 2 do
        local request = requests.load(oldest[i])
        local waited = request and not request.victim_hold_pool and tonumber(request.queued_ms or request.submitted_ms) <= since_ms
        if waited then return oldest[i], tonumber(oldest[i + 1]) end
        more = more and request and request.victim_hold_pool
        from = '(' .. oldest[i + 1]
      end
    end
  end
end

local best, at, best_path, best_lane
local places = redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1, 'WITHSCORES')
for i = 1, #places, 2 do
  if at and tonumber(places[i + 1]) > at then break end
  local constraint, _, since = parking.find(pool, places[i])
  if parking.is_capacity(constraint) and constraint ~= parking.NEW and tonumber(since) <= since_ms then
    local lane = lanes.open(places[i])
    local path = accounts.path(pool.name, lane.component)
    local id, inner = overdue(lane)
    local place = id and queue_order.queue_score(pool, path[1], inner, lanes.is_in_share(path, lane))
    local why = id and (not at or place < at) and accounts.blocker(path, lane.units, lane.fixed, false)
    if why and why.account == 'pool' then best, at, best_path, best_lane = id, place, path, lane end
  end
end
if not best then return reply.nobody() end
patience_hold.open(best_path, best_lane, best)
return reply.given(best)
