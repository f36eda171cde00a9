-- Leases of allocations: the fence under which an allocation is held, and the end of its lease. A task's lease runs from the
-- start of its work. `jobs/clean_up` ends the allocations of leases that are over.
-- @use amounts clock
-- @writes leases

-- True if the work has started; a task has started when a worker reports it.
function leases.has_started(request) return not request.task or (request.started_ms or '') ~= '' end

-- True if the request is allocated under this fence.
function leases.is_held(request, fence)
  return request.fence == fence and redis.call('ZSCORE', keys.leases(), request.id) ~= false
end

-- True if the request is allocated under this fence, and its work has started.
function leases.is_held_and_started(request, fence) return leases.has_started(request) and leases.is_held(request, fence) end

-- Begin the lease of a new allocation.
function leases.begin(request)
  local end_ms = request.lease_s and not request.task and clock.after(request.lease_s) or const.MAX_AMOUNT
  redis.call('ZADD', keys.leases(), amounts.format(end_ms), request.id)
end

-- Prolong the lease: its interval begins now. Return its end (ms) as text; empty if it never ends.
function leases.prolong(request)
  if not request.lease_s then return '' end
  local end_ms = amounts.format(clock.after(request.lease_s))
  redis.call('ZADD', keys.leases(), end_ms, request.id)
  return end_ms
end

-- Return the number of allocations of the workspace.
function leases.count() return redis.call('ZCARD', keys.leases()) end

-- End the lease of an allocation.
function leases.finish(id) redis.call('ZREM', keys.leases(), id) end

-- Return the end (ms) of the lease of a request as text; empty if the request has no lease.
function leases.end_ms(request)
  return request.lease_s and redis.call('ZSCORE', keys.leases(), request.id) or ''
end
