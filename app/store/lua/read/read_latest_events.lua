-- The end of the workspace's stream of events, the newest first.
-- @keys events
-- @args count
-- @reply found entries

return reply.found(redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', args.count))
