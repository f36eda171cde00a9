-- Return the id of the newest event of the workspace; 0-0 before the first.
-- @reads events
-- @reply found id

local newest_events = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
return reply.found(newest_events[1] and newest_events[1][1] or '0-0')
