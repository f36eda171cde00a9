-- Cancel a queued request.
-- @use clock grant_loop grants lanes requests
-- @args now events_kept chunk id
-- @reply cancelled request more
-- @reply conflict status
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local request = requests.load(args.id)
if not request then return reply.not_found() end
if request.status == states.cancelled then return reply.cancelled(requests.flat(request), grant_loop.settle(tonumber(args.chunk))) end
if request.status ~= states.queued then return reply.conflict(request.status) end

local fields = {}
grants.dequeue(request, lanes.of(request))
requests.finish(request, states.cancelled, 'cancelled', {}, fields)
requests.save(request, fields)
local more = grant_loop.settle(tonumber(args.chunk))
return reply.cancelled(requests.flat(request), more)
