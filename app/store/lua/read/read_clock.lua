-- Read the time that every deadline of the workspace goes by.
-- @use clock
-- @args now
-- @reply found now_ms

clock.start(args.now)
return reply.found(clock.now)
