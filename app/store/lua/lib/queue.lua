-- Who waits: into a lane and the queues of its pools, and out of all of them at once.
-- @use accounts amounts lanes nudges queue_order
-- @keys lane lane_walltimes component_lanes pool_queue pool_unfinished waiting orphaned_lanes

function queue.enter(request, lane, inner, deadline)
  redis.call('ZADD', keys.lane(lane.id), amounts.format(inner), request.id)
  if request.walltime_s then redis.call('ZADD', keys.lane_walltimes(lane.id), request.walltime_s, request.id) end
  redis.call('SADD', keys.component_lanes(lane.component), lane.id)
  redis.call('ZADD', keys.waiting(), amounts.format(deadline), request.id)
  nudges.send()
end

-- Stand in a pool's queue; a lane new to the pool is parked on what keeps it, one that is there is seated anew for a new head.
function queue.enter_pool(path, request, lane, inner, constraint, need)
  local pool = path[#path]
  redis.call('ZADD', keys.pool_queue(pool.name), amounts.format(queue_order.rank_score(pool, path[1], inner)), request.id)
  if not lanes.is_attached(pool, lane) then lanes.attach(path, lane, constraint, need)
  elseif lanes.head(lane) == request.id then lanes.reposition(path, lane) end
end

-- A lane nobody is in any more leaves every pool.
function queue.forget_lane(lane)
  redis.call('SREM', keys.component_lanes(lane.component), lane.id)
  redis.call('SREM', keys.orphaned_lanes(), lane.id)
  for _, name in ipairs(lanes.pools(lane.component)) do lanes.detach(accounts.pool(name), lane) end
end

-- Leave every queue. Says in which pools somebody else may now stand first.
function queue.leave(id, lane)
  local was = lanes.head(lane) == id
  redis.call('ZREM', keys.lane(lane.id), id)
  redis.call('ZREM', keys.lane_walltimes(lane.id), id)
  redis.call('ZREM', keys.waiting(), id)
  local last = redis.call('EXISTS', keys.lane(lane.id)) == 0
  local stirred = {}
  for _, name in ipairs(lanes.pools(lane.component)) do
    redis.call('ZREM', keys.pool_queue(name), id)
    local path = accounts.path(name, lane.component)
    local pool = path[#path]
    if was and lanes.is_attached(pool, lane) then
      stirred[#stirred + 1] = pool
      if not last then lanes.reposition(path, lane) end
    end
  end
  if last then queue.forget_lane(lane) end
  return stirred
end

-- Whether a lane's members have the scores they should: by another rule at most one class keeps its own, so the ends tell.
function queue.is_in_order(path, lane)
  local policy, pool = path[1], path[#path]
  for _, at in ipairs({0, -1}) do
    local member = redis.call('ZRANGE', keys.lane(lane.id), at, at, 'WITHSCORES')
    local score = redis.call('ZSCORE', keys.pool_queue(pool.name), member[1])
    if not score or tonumber(score) ~= queue_order.rank_score(pool, policy, tonumber(member[2])) then return false end
  end
  return true
end

-- A lane's members have to enter, leave or move in the pool's queue: what is unfinished begins with the first of them.
function queue.schedule_sync(pool, lane)
  redis.call('HSET', keys.pool_unfinished(pool.name), 'sync ' .. lane.id, '-inf')
end

-- Before somebody joins a lane that a review has yet to come to: whoever stands at its ends then would hide the others.
function queue.schedule_sync_if_stale(path, lane)
  local pool = path[#path]
  if not pool.fields.reviewing or redis.call('EXISTS', keys.lane(lane.id)) == 0 then return end
  if not queue.is_in_order(path, lane) then queue.schedule_sync(pool, lane) end
end
