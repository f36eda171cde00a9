-- Prolong the lease of an allocation.
-- @use amounts clock requests
-- @keys live
-- @args now id fence
-- @reply alive status lapses
-- @reply stale_fence status reason
-- @reply not_found

clock.start(args.now)

local request = requests.load(args.id)
if not request then return reply.not_found() end
if request.fence ~= args.fence or not redis.call('ZSCORE', keys.live(), args.id) then
  return reply.stale_fence(request.status, request.reason)
end
if not request.lease_s then return reply.alive(request.status, '') end

local lapses = amounts.whole(clock.after(request.lease_s))
redis.call('ZADD', keys.live(), lapses, args.id)
return reply.alive(request.status, lapses)
