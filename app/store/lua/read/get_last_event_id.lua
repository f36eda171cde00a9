-- The id of the newest entry of the workspace's stream of events; 0-0 before the first.
-- @keys events
-- @reply found id

local newest = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
return reply.found(newest[1] and newest[1][1] or '0-0')
