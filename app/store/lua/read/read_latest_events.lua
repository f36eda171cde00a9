-- Read the end of the event stream of the workspace, the newest first.
-- @reads events
-- @args count
-- @reply found entries

return reply.found(redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', args.count))
