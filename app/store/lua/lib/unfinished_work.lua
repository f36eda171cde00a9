-- Going on with what bounded scripts left: reviews, then grants, then the queues, then those who fit nowhere any more.
-- @use accounts dirty_pools grant_loop rechecks
-- @keys unfinished pool_unfinished

-- One round that touches up to `count`; says whether something is left.
function unfinished_work.resume(count)
  local left = count
  local function all_of(done, through)
    left = left - done
    return through and left > 0
  end
  local pools = redis.call('SMEMBERS', keys.unfinished())
  table.sort(pools)
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and pool.fields.reviewing and not all_of(rechecks.step(pool, left)) then return 1 end
  end
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and pool.fields.unsettled then dirty_pools.mark(pool) end
  end
  if grant_loop.run(left) then return 1 end
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and not all_of(rechecks.sync_queue(pool, left)) then return 1 end
    if redis.call('EXISTS', keys.pool_unfinished(name)) == 0 then redis.call('SREM', keys.unfinished(), name) end
  end
  if not all_of(rechecks.reject_orphans(left)) then return 1 end
  return grant_loop.settle(left)
end
