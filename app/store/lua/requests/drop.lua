-- End a request by an operator: a waiter leaves the queue, an allocation loses its units; an ended one stays as it is.
-- @use clock grant_loop grants lanes requests
-- @args now events_kept chunk id
-- @reply dropped request more
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local request = requests.load(args.id)
if not request then return reply.not_found() end

local fields = {}
if request.status == states.queued then
  grants.dequeue(request, lanes.of(request))
  requests.finish(request, states.cancelled, 'cancelled', {'reason', 'dropped'}, fields)
elseif request.status == states.allocated or request.status == states.preempting then
  grants.take_back(request)
  requests.finish(request, states.released, 'released', {'reason', 'dropped'}, fields)
else
  return reply.dropped(requests.flat(request), grant_loop.settle(tonumber(args.chunk)))
end
requests.save(request, fields)
local more = grant_loop.settle(tonumber(args.chunk))
return reply.dropped(requests.flat(request), more)
