-- Read a request with its positions in the queues. With `poll` this is a poll, and the reply has the time of the poll before it.
-- @use amounts clock leases polls queue_positions requests
-- @writes waiting
-- @args now id poll
-- @reply found request lapses places
-- @reply not_found

clock.start(args.now)
local request = requests.load(args.id)
if not request then return reply.not_found() end

local flat = polls.flat(request)
if args.poll == '1' and request.status == states.queued and requests.queue_ttl_s(request) then
  redis.call('ZADD', keys.waiting(), 'XX', amounts.format(clock.after(request.queue_ttl_s)), args.id)
end
return reply.found(flat, leases.end_ms(request), queue_positions.of_request(request))
