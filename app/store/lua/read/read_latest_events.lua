-- Read `count` events of the workspace, newest first. `last`: `+` begins with the newest, `(` and an id with the event before that one.
-- @reads events
-- @args last count
-- @reply found entries

return reply.found(redis.call('XREVRANGE', keys.events(), args.last, '-', 'COUNT', args.count))
