-- Going on with what bounded scripts left: reviews, then grants, then the queues, then those who fit nowhere any more.
-- @use accounts passes reviews stirs
-- @keys todo pool_todo

-- One round that touches up to `count`; says whether something is left.
function rounds.advance(count)
  local left = count
  local function all_of(done, through)
    left = left - done
    return through and left > 0
  end
  local pools = redis.call('SMEMBERS', keys.todo())
  table.sort(pools)
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and pool.is.reviewing and not all_of(reviews.step(pool, left)) then return 1 end
  end
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and pool.is.unsettled then stirs.stir(pool) end
  end
  if passes.run(left) then return 1 end
  for _, name in ipairs(pools) do
    local pool = accounts.pool(name)
    if pool and not all_of(reviews.sync(pool, left)) then return 1 end
    if redis.call('EXISTS', keys.pool_todo(name)) == 0 then redis.call('SREM', keys.todo(), name) end
  end
  if not all_of(reviews.reject(left)) then return 1 end
  return passes.settle(left)
end
