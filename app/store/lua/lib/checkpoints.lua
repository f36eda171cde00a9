-- Checkpoints, from which the work of an allocation can resume.
-- @use amounts clock pool_changes requests
-- @writes pool_allocation_records

-- Store a completed checkpoint.
function checkpoints.save(request, reference, fields)
  local now = amounts.format(clock.now)
  requests.set(request, fields, 'checkpointed_ms', now)
  if reference ~= '' then requests.set(request, fields, 'reference', reference) end
  if request.pool == '' then return end
  local key, record = keys.pool_allocation_records(request.pool), requests.allocation_record(request)
  if redis.call('HGET', key, request.id) == record then return end
  redis.call('HSET', key, request.id, record)
  pool_changes.add(request.pool, {'request:' .. request.id})
end
