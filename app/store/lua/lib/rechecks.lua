-- After a change of a pool, a group or a policy: recheck eligibility and score of every lane, a bounded part at a time.
-- @use accounts amounts dirty_pools eligibility fair_share_order grants lanes nudges parking parking_rebuild patience_hold queue recheck_cursor victim_holds work_budget
-- @reads lane
-- @writes meta orphaned_lanes pool pool_queue_syncs unfinished

local function is_enough(done, count) return done >= count or done > 0 and work_budget.is_used_up() end

-- Start a recheck: the pool grants nothing until all its lanes are rechecked.
function rechecks.start(pool)
  accounts.forget(pool.key)
  local number = amounts.format(redis.call('HINCRBY', keys.meta(), 'rules', 1))  -- one sequence for the workspace, so that a pool that is created again gets another number
  redis.call('HSET', pool.key, 'reviewing', '1', 'watched', fair_share_order.watch_state(pool.name), 'rules', number)
  recheck_cursor.start(pool)
  redis.call('SADD', keys.unfinished(), pool.name)
end

local function exclude(pool, lane)
  local owner = patience_hold.owner(pool)
  if owner and owner.lane == lane then grants.end_patience_hold(pool) end
  for _, hold in ipairs({unpack(victim_holds.list(pool))}) do
    if hold.lane == lane then grants.end_victim_hold(pool, hold) end
  end
  lanes.detach(pool, lane)
  queue.schedule_sync(pool, lane)
  for _, name in ipairs(lanes.pools(lane)) do
    if lanes.is_attached(accounts.pool(name), lane) then return end
  end
  redis.call('ZADD', keys.orphaned_lanes(), 0, lane.id)
end

local function recheck(path, lane)
  local pool = path[#path]
  if not lanes.head(lane) then return queue.forget_lane(lane) end
  local attached = lanes.is_attached(pool, lane)
  if eligibility.refusal(path, lane) then
    if attached then return exclude(pool, lane) end
    for _, name in ipairs(lanes.pools(lane)) do
      if lanes.is_attached(accounts.pool(name), lane) then return end
    end
    return redis.call('ZADD', keys.orphaned_lanes(), 0, lane.id)
  end
  redis.call('ZREM', keys.orphaned_lanes(), lane.id)
  local is_syncing = redis.call('ZSCORE', keys.pool_queue_syncs(pool.name), lane.id)
  if not attached or is_syncing or not queue.is_in_order(path, lane) then queue.schedule_sync(pool, lane) end
  lanes.attach(path, lane, parking.NEW, 0)
end

-- Recheck up to `count` lanes; return how many, and whether that was all.
function rechecks.step(pool, count)
  if not parking_rebuild.step(pool) then return 0, false end
  local cursor, count_done = recheck_cursor.load(pool), 0
  local function stop()
    recheck_cursor.save(pool, cursor)
    return count_done, false
  end
  while not recheck_cursor.is_at_end(cursor) do
    for _, id in ipairs(recheck_cursor.next_lanes(pool, cursor)) do
      if is_enough(count_done, count) then return stop() end
      local lane = lanes.open(id)
      local path = accounts.path(pool.name, lane.component)
      if path then recheck(path, lane) end  -- else the policy was deleted meanwhile
      cursor.lane = id
      count_done = count_done + 1
    end
    if work_budget.is_used_up() then return stop() end
  end
  recheck_cursor.finish(pool)
  redis.call('HDEL', pool.key, 'reviewing')
  redis.call('HSET', pool.key, 'unsettled', '1')
  pool.fields.reviewing, pool.fields.unsettled = nil, '1'
  if fair_share_order.applies(pool) then nudges.send() end
  if pool.fields.patience and (pool.fields.queueing == 'strict' or not pool.fields.patience_s) then grants.end_patience_hold(pool) end
  dirty_pools.mark(pool)
  return count_done, true
end

-- Sync up to `count` waiters of changed lanes with the queue of the pool.
function rechecks.sync_queue(pool, count)
  local count_done, is_first, syncs = 0, true, keys.pool_queue_syncs(pool.name)
  for first in function() return redis.call('ZRANGE', syncs, 0, 0, 'WITHSCORES') end do
    local id, from = unpack(first)
    if not id then return count_done, true end
    if work_budget.is_used_up() and not is_first then return count_done, false end
    is_first = false
    local lane = lanes.open(id)
    local path = accounts.path(pool.name, lane.component)
    local attached = path and lanes.is_attached(pool, lane)
    local members = redis.call('ZRANGEBYSCORE', keys.lane(id), from, '+inf', 'WITHSCORES', 'LIMIT', 0, 32)
    for i = 1, #members, 2 do
      if is_enough(count_done, count) then return count_done, false end
      if path then queue.sync(path, members[i], tonumber(members[i + 1]), attached) end
      redis.call('ZADD', syncs, amounts.format(tonumber(members[i + 1]) + 1), id)
      count_done = count_done + 1
    end
    if #members < 64 then redis.call('ZREM', syncs, id) end
  end
end
