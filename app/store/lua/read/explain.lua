-- Explain why a request waits: in each pool its position, its blocking constraints and all that it lacks.
-- @use clock leases polls queue_status requests
-- @reads events
-- @args now id
-- @reply found request lapses pools event
-- @reply not_found

clock.start(args.now)
local request = requests.load(args.id)
if not request then return reply.not_found() end

local newest_events = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
local event = newest_events[1] and newest_events[1][1] or '0-0'

return reply.found(polls.flat(request), leases.end_ms(request), queue_status.rows(request), event)
