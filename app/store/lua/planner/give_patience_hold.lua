-- Give the patience hold of a pool, if it has none, to the first waiter that capacity has blocked for longer than its patience. If
-- more than `count` lanes are blocked that long, each call compares `count` lanes of the queue: `first` is the position of the first of
-- them (0 is the head), and `best` the best lane of the earlier calls.
-- @use accounts amounts clock future_times lanes parking patience_hold queue_order requests
-- @reads lane pool_blocked_since pool_lanes
-- @args now pool first best count
-- @reply given id
-- @reply more first best
-- @reply none

clock.start(args.now)
local pool = accounts.pool(args.pool)
local is_due = pool and pool.fields.patience_s and pool.fields.queueing ~= 'strict' and not pool.fields.patience
  and not pool.fields.reviewing and not pool.fields.unsettled
if not is_due then return reply.none() end
local since_ms = clock.now - tonumber(pool.fields.patience_s) * 1000

local PAGE = 16
local count = tonumber(args.count)

-- Return the first waiter of a lane that waits too long, and its lane score: the head, else the oldest of each class.
local function first_overdue(lane)
  for class = const.CLASS_COUNT - 1, 0, -1 do
    local from, more = amounts.format(queue_order.lane_score(class, 0)), true
    while more do  -- skip owners of victim holds; only the first few others count, as the rest is younger
      local oldest = redis.call('ZRANGEBYSCORE', keys.lane(lane.id), from, '(' .. amounts.format(queue_order.lane_score(class, const.MAX_SUBMISSIONS)),
        'WITHSCORES', 'LIMIT', 0, PAGE)
      more = #oldest == 2 * PAGE
      for i = 1, #oldest, 2 do
        local request = requests.load(oldest[i])
        local is_overdue = request and not request.victim_hold_pool and future_times.past(request.queued_ms or request.submitted_ms) <= since_ms
        if is_overdue then return oldest[i], tonumber(oldest[i + 1]) end
        more = more and request and request.victim_hold_pool
        from = '(' .. oldest[i + 1]
      end
    end
  end
end

local best

-- Compare a lane, if capacity has blocked it for too long, with the best so far.
local function compare(id)
  local constraint, _, since = parking.find(pool, id)
  if not constraint or not parking.is_capacity(constraint) or constraint == parking.NEW or future_times.past(since) > since_ms then return end
  local lane = lanes.open(id)
  local path = accounts.path(pool.name, lane.component)
  local request_id, lane_score = first_overdue(lane)
  local queue_score = request_id and queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane))
  local blocker = request_id and (not best or queue_score < best.queue_score) and accounts.blocker(path, lane.units, lane.fixed, false)
  if blocker and blocker.account == 'pool' then best = {id = request_id, queue_score = queue_score, path = path, lane = lane} end
end

-- Compare a range of the pool's lanes in queue order. Return the number of lanes seen so far, nil if no later lane can be better.
local function compare_range(first)
  local scores = redis.call('ZRANGE', keys.pool_lanes(pool.name), first, first + count - 1, 'WITHSCORES')
  for i = 1, #scores, 2 do
    if best and tonumber(scores[i + 1]) > best.queue_score then return nil end
    compare(scores[i])
  end
  return #scores == 2 * count and first + count or nil
end

local function blocked_between(least, most)
  return redis.call('ZRANGEBYSCORE', keys.pool_blocked_since(pool.name), least, most, 'LIMIT', 0, count + 1)
end

local overdue = blocked_between('-inf', amounts.format(since_ms))
for _, id in ipairs(blocked_between('(' .. amounts.format(clock.now), '+inf')) do overdue[#overdue + 1] = id end  -- the clock was set back
if #overdue <= count then
  for _, id in ipairs(overdue) do compare(id) end
else
  if args.best ~= '' then compare(args.best) end
  local next_first = compare_range(tonumber(args.first))
  if next_first then return reply.more(amounts.format(next_first), best and best.lane.id) end
end
if not best then return reply.none() end
patience_hold.open(best.path, best.lane, best.id)
return reply.given(best.id)
