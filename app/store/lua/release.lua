-- Give back an allocation and grant what then fits.
-- @use clock grants passes requests
-- @keys live
-- @args now kept chunk id fence outcome
-- @reply released request more
-- @reply stale_fence status reason
-- @reply not_found

clock.start(args.now)
requests.keep(args.kept)

local request = requests.load(args.id)
if not request then return reply.not_found() end
if request.status == states.released and request.fence == args.fence then return reply.released(requests.flat(request), 0) end
if request.fence ~= args.fence or not redis.call('ZSCORE', keys.live(), args.id) then
  return reply.stale_fence(request.status, request.reason)
end

local fields = {}
grants.back(request)
requests.finish(request, states.released, 'released', {'outcome', args.outcome}, fields)
requests.write(request, fields)
local more = passes.settle(tonumber(args.chunk))
return reply.released(requests.flat(request), more)
