-- A stretch of the workspace's stream of events, after an entry.
-- @keys events
-- @args after count
-- @reply found entries

return reply.found(redis.call('XRANGE', keys.events(), '(' .. args.after, '+', 'COUNT', args.count))
