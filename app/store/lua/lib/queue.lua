-- Waiters: they enter a lane and the queues of its pools, and leave all of them at once.
-- @use accounts amounts dirty_pools fair_share_order lanes nudges parking queue_order templates waiter_counts
-- @writes component_lanes lane lane_walltimes lanes orphaned_lanes policy pool_policy_queue pool_queue pool_queue_syncs waiting

function queue.enter(request, lane, lane_score, deadline)
  redis.call('ZADD', keys.lane(lane.id), amounts.format(lane_score), request.id)
  if request.walltime_s then redis.call('ZADD', keys.lane_walltimes(lane.id), request.walltime_s, request.id) end
  if redis.call('ZADD', keys.component_lanes(lane.component), 0, lane.id) == 1 then redis.call('SADD', keys.lanes(), lane.id) end
  redis.call('ZADD', keys.waiting(), amounts.format(deadline), request.id)
  waiter_counts.count(request.limited_by, lane, request.id)
  nudges.send()
end

-- Store a waiter in the queue of a pool. The policy counts it; with fair share it has a queue of its own.
function queue.write_score(path, id, lane_score)
  local policy, pool = path[1], path[#path]
  local added = redis.call('ZADD', keys.pool_queue(pool.name), amounts.format(queue_order.rank_score(pool, policy, lane_score)), id)
  if added == 1 then redis.call('HINCRBY', policy.key, 'queue_length', 1) end
  if fair_share_order.applies(pool) then redis.call('ZADD', keys.pool_policy_queue(pool.name, policy.component), amounts.format(lane_score), id) end
end

-- Remove a waiter from the queue of a pool.
function queue.remove(path, id)
  local policy, pool = path[1], path[#path]
  if redis.call('ZREM', keys.pool_queue(pool.name), id) == 1 then redis.call('HINCRBY', policy.key, 'queue_length', -1) end
  if policy.fields.template then templates.touch(pool, policy) end
  redis.call('ZREM', keys.pool_policy_queue(pool.name, policy.component), id)  -- also if the pool had fair share until now
end

-- Correct the entry of a waiter in the queue of a pool: there is one if its lane is `attached` to the pool.
function queue.sync(path, id, lane_score, attached)
  if not attached then return queue.remove(path, id) end
  queue.write_score(path, id, lane_score)
  if not fair_share_order.applies(path[#path]) then redis.call('ZREM', keys.pool_policy_queue(path[#path].name, path[1].component), id) end
end

-- Enter the queue of a pool. A lane new to the pool is parked on its constraint; a lane with a new head is repositioned. With
-- strict queueing it may become the first of the line. If a limit blocks the new head, a pass judges it, to unblock the line.
function queue.enter_pool(path, request, lane, lane_score, constraint, need)
  local pool = path[#path]
  queue.write_score(path, request.id, lane_score)
  if request.walltime_s then parking.update_walltime(pool, lane.id) end
  if not lanes.is_attached(pool, lane) then lanes.attach(path, lane, constraint, need)
  elseif lanes.head(lane) == request.id then
    lanes.reposition(path, lane)
    if not parking.is_capacity(constraint) and parking.find(pool, lane.id) == 'line' then dirty_pools.mark(pool) end
  end
end

-- Detach an empty lane from every pool.
function queue.forget_lane(lane)
  redis.call('ZREM', keys.component_lanes(lane.component), lane.id)
  redis.call('SREM', keys.lanes(), lane.id)
  redis.call('ZREM', keys.orphaned_lanes(), lane.id)
  for _, name in ipairs(lanes.pools(lane)) do lanes.detach(accounts.pool(name), lane) end
end

-- Reposition a lane whose head left. With strict queueing, the head's own victim hold does not block it. So a lane that is
-- parked on victim holds is judged again.
local function replace_head(path, lane)
  local pool, score = path[#path], lanes.reposition(path, lane)
  if pool.fields.queueing ~= 'strict' or not pool.fields.victim_holds then return end
  if string.match(parking.find(pool, lane.id), '^victim_held|') then
    parking.park(pool, lane.id, parking.NEW, 0, score)
    dirty_pools.mark_new(pool)
  end
end

-- Leave every queue. Return the pools in which another waiter may be first now.
function queue.leave(request, lane)
  local id = request.id
  local was_head = lanes.head(lane) == id
  redis.call('ZREM', keys.lane(lane.id), id)
  local had_walltime = redis.call('ZREM', keys.lane_walltimes(lane.id), id) == 1
  redis.call('ZREM', keys.waiting(), id)
  waiter_counts.uncount(request.limited_by, lane, id)
  local lane_is_empty = redis.call('EXISTS', keys.lane(lane.id)) == 0
  local changed_pools = {}
  for _, name in ipairs(lanes.pools(lane)) do
    local path = accounts.path(name, lane.component)
    local pool = path[#path]
    queue.remove(path, id)
    if had_walltime then parking.update_walltime(pool, lane.id) end
    if was_head and lanes.is_attached(pool, lane) then
      changed_pools[#changed_pools + 1] = pool
      if not lane_is_empty then replace_head(path, lane) end
    end
  end
  if lane_is_empty then queue.forget_lane(lane) end
  return changed_pools
end

-- True if the waiters of a lane have the scores of the present rules. After a change at most one class keeps its scores, so it
-- is enough to check both ends.
function queue.is_in_order(path, lane)
  local policy, pool = path[1], path[#path]
  for _, index in ipairs({0, -1}) do
    local member = redis.call('ZRANGE', keys.lane(lane.id), index, index, 'WITHSCORES')
    local score = redis.call('ZSCORE', keys.pool_queue(pool.name), member[1])
    if not score or tonumber(score) ~= queue_order.rank_score(pool, policy, tonumber(member[2])) then return false end
    local policy_score = redis.call('ZSCORE', keys.pool_policy_queue(pool.name, policy.component), member[1])
    if (policy_score ~= false) ~= fair_share_order.applies(pool) then return false end
  end
  return true
end

-- Schedule the sync of a lane with the pool's queue, beginning with its first waiter.
function queue.schedule_sync(pool, lane)
  redis.call('ZADD', keys.pool_queue_syncs(pool.name), 0, lane.id)
end

-- Schedule the sync of a lane that a recheck has not reached, before a joining waiter hides the old scores at its ends.
function queue.schedule_sync_if_stale(path, lane)
  local pool = path[#path]
  if not pool.fields.reviewing or redis.call('EXISTS', keys.lane(lane.id)) == 0 then return end
  if not queue.is_in_order(path, lane) then queue.schedule_sync(pool, lane) end
end

-- Schedule the rejection of the waiters of a lane that is eligible in no pool.
function queue.reject_lane(lane) redis.call('ZADD', keys.orphaned_lanes(), 0, lane.id) end
