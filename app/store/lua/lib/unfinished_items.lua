-- Items of a pool on which a bounded call left work for a later call. The pool has a flag, named like the kind of the work,
-- while there are such items. Without the flag a caller need not read the items.
-- @writes pool pool_unfinished unfinished

-- Note that the work on an item is not finished.
function unfinished_items.note(pool, kind, item)
  pool.fields[kind] = '1'
  redis.call('HSET', pool.key, kind, '1')
  redis.call('HSET', keys.pool_unfinished(pool.name), kind .. ' ' .. item, '1')
  redis.call('SADD', keys.unfinished(), pool.name)
end

-- True if the work on an item is not finished.
function unfinished_items.contains(pool, kind, item)
  return pool.fields[kind] ~= nil and redis.call('HEXISTS', keys.pool_unfinished(pool.name), kind .. ' ' .. item) == 1
end

-- Call `finish` with each item, which returns true if nothing is left of it. Return true if no item is left.
function unfinished_items.resume(pool, kind, finish)
  for _, name in ipairs(redis.call('HKEYS', keys.pool_unfinished(pool.name))) do
    local item = string.match(name, '^' .. kind .. ' (.+)$')
    if item and not finish(item) then return false end
    if item then redis.call('HDEL', keys.pool_unfinished(pool.name), name) end
  end
  pool.fields[kind] = nil
  redis.call('HDEL', pool.key, kind)
  return true
end
