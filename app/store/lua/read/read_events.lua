-- Read a stretch of the event stream of the workspace, after an entry.
-- @reads events
-- @args after count
-- @reply found entries

return reply.found(redis.call('XRANGE', keys.events(), '(' .. args.after, '+', 'COUNT', args.count))
