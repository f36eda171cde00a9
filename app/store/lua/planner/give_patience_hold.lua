-- Give the patience hold of a pool, if it has none, to the first waiter that capacity has blocked for too long.
-- @use accounts amounts clock lanes parking patience_hold queue_order requests
-- @reads lane pool_lanes
-- @args now pool
-- @reply given id
-- @reply none

clock.start(args.now)
local pool = accounts.pool(args.pool)
local is_due = pool and pool.fields.patience_s and pool.fields.queueing ~= 'strict' and not pool.fields.patience
  and not pool.fields.reviewing and not pool.fields.unsettled
if not is_due then return reply.none() end
local since_ms = clock.now - tonumber(pool.fields.patience_s) * 1000

local PAGE = 16

-- Return the first waiter of a lane that waits too long, and its lane score: the head, else the oldest of each class.
local function first_overdue(lane)
  for class = const.CLASS_COUNT - 1, 0, -1 do
    local from, more = amounts.format(queue_order.lane_score(class, 0)), true
    while more do  -- an owner of a victim hold has a hold already; of the others the first few count, as the rest is younger
      local oldest = redis.call('ZRANGEBYSCORE', keys.lane(lane.id), from, '(' .. amounts.format(queue_order.lane_score(class, const.MAX_SUBMISSIONS)),
        'WITHSCORES', 'LIMIT', 0, PAGE)
      more = #oldest == 2 * PAGE
      for i = 1, #oldest, 2 do
        local request = requests.load(oldest[i])
        local is_overdue = request and not request.victim_hold_pool and tonumber(request.queued_ms or request.submitted_ms) <= since_ms
        if is_overdue then return oldest[i], tonumber(oldest[i + 1]) end
        more = more and request and request.victim_hold_pool
        from = '(' .. oldest[i + 1]
      end
    end
  end
end

local best_id, best_score, best_path, best_lane
local scores = redis.call('ZRANGE', keys.pool_lanes(pool.name), 0, -1, 'WITHSCORES')
for i = 1, #scores, 2 do
  if best_score and tonumber(scores[i + 1]) > best_score then break end
  local constraint, _, since = parking.find(pool, scores[i])
  if parking.is_capacity(constraint) and constraint ~= parking.NEW and tonumber(since) <= since_ms then
    local lane = lanes.open(scores[i])
    local path = accounts.path(pool.name, lane.component)
    local id, lane_score = first_overdue(lane)
    local queue_score = id and queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane))
    local blocker = id and (not best_score or queue_score < best_score) and accounts.blocker(path, lane.units, lane.fixed, false)
    if blocker and blocker.account == 'pool' then best_id, best_score, best_path, best_lane = id, queue_score, path, lane end
  end
end
if not best_id then return reply.none() end
patience_hold.open(best_path, best_lane, best_id)
return reply.given(best_id)
