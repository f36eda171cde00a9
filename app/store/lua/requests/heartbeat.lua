-- Prolong the lease of an allocation.
-- @use amounts clock requests
-- @keys leases
-- @args now id fence
-- @reply alive status lapses directive deadline
-- @reply stale_fence status reason
-- @reply not_found

clock.start(args.now)

local request = requests.load(args.id)
if not request then return reply.not_found() end
local has_started = not request.task or (request.started_ms or '') ~= ''
if request.fence ~= args.fence or not has_started or not redis.call('ZSCORE', keys.leases(), args.id) then
  return reply.stale_fence(request.status, request.reason)
end
local lease_end_ms = request.lease_s and amounts.format(clock.after(request.lease_s)) or ''
if request.lease_s then redis.call('ZADD', keys.leases(), lease_end_ms, args.id) end
return reply.alive(request.status, lease_end_ms, request.directive or '', request.deadline_ms or '')
