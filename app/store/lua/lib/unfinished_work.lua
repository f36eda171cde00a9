-- Resume unfinished work: instances of changed templates, rechecks, the victims of closed holds, grants, the sync of queues,
-- rejections.
-- @use accounts dirty_pools grant_loop lane_rejections orphans rechecks template_updates
-- @reads pool_queue_syncs pool_unfinished
-- @writes unfinished

-- Resume up to `count` items; return 1 if any are left, else 0.
function unfinished_work.resume(count)
  local remaining = count
  local function spend(count_done, is_complete)
    remaining = remaining - count_done
    return is_complete and remaining > 0
  end
  local pools = redis.call('SMEMBERS', keys.unfinished())
  table.sort(pools)
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and pool.fields.template_updates and not template_updates.resume(pool) then return 1 end
    if pool and pool.fields.reviewing and not spend(rechecks.step(pool, remaining)) then return 1 end
  end
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and pool.fields.orphaning and not orphans.resume(pool) then return 1 end
    if pool and pool.fields.unsettled then dirty_pools.mark(pool) end
  end
  if grant_loop.run(remaining) then return 1 end
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and not spend(rechecks.sync_queue(pool, remaining)) then return 1 end
    if redis.call('EXISTS', keys.pool_unfinished(name), keys.pool_queue_syncs(name)) == 0 then redis.call('SREM', keys.unfinished(), name) end
  end
  if not spend(lane_rejections.step(remaining)) then return 1 end
  return grant_loop.settle(remaining)
end
