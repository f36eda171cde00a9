-- Prolong the lease of an allocation.
-- @use clock leases requests
-- @args now id fence
-- @reply alive status lapses directive deadline
-- @reply stale_fence status reason
-- @reply not_found

clock.start(args.now)

local request = requests.load(args.id)
if not request then return reply.not_found() end
if not leases.is_held_and_started(request, args.fence) then return reply.stale_fence(request.status, request.reason) end
return reply.alive(request.status, leases.prolong(request), request.directive or '', request.deadline_ms or '')
