-- The rows that the audit adds up to the sums of a pool: allocations, and waiters for which units are kept.
-- @reads hold pool_allocations pool_holds pool_queue pool_victims request

-- Return an allocation: id, component, `1` if it is fixed, amounts, and for a victim the owner of the hold it leaves for (`-` none).
-- If the request is no allocation of the pool, return only its id.
function audit_rows.allocation(pool_name, id)
  local status, pool, component, preemptible, resources = unpack(redis.call('HMGET', keys.request(id), 'status', 'pool', 'component', 'preemptible', 'resources'))
  local is_allocation = pool == pool_name and (status == states.allocated or status == states.preempting)
  if not is_allocation or not redis.call('ZSCORE', keys.pool_allocations(pool_name), id) then return {id} end
  local owner = status == states.preempting and (redis.call('HGET', keys.pool_victims(pool_name), id) or '-') or ''
  return {id, component, preemptible == '0' and '1' or '', resources, owner}
end

-- Return an owner of a victim hold: id, component, amounts, fields of the hold. Return only the id of a request without such a hold.
function audit_rows.hold(pool_name, id)
  local kind = redis.call('HGET', keys.pool_holds(pool_name), id)
  local component, resources = unpack(redis.call('HMGET', keys.request(id), 'component', 'resources'))
  if not component or not kind or not string.match(kind, '^victims ') then return {id} end
  return {id, component, resources, redis.call('HGETALL', keys.hold(pool_name, id))}
end

-- Return the owner of the patience hold: id, component, amounts; an empty row if there is none.
function audit_rows.patience_hold(pool)
  local id = pool.fields.patience
  local component, resources = unpack(redis.call('HMGET', keys.request(id or ''), 'component', 'resources'))
  return component and {id, component, resources} or {}
end

-- Return a waiter in the queue of the pool: id and component. Return only the id of a request that is not there.
function audit_rows.waiter(pool_name, id)
  if not redis.call('ZSCORE', keys.pool_queue(pool_name), id) then return {id} end
  return {id, redis.call('HGET', keys.request(id), 'component')}
end
