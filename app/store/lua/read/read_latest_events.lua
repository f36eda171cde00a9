-- Read a stretch of the event stream of the workspace backwards: `+` is its end, `(` and an id what is before an entry.
-- @reads events
-- @args last count
-- @reply found entries

return reply.found(redis.call('XREVRANGE', keys.events(), args.last, '-', 'COUNT', args.count))
