-- List all tokens, expired ones included, and the present time (ms).
-- @use amounts clock
-- @reads tokens
-- @args now
-- @reply found records now_ms

clock.start(args.now)
return reply.found(redis.call('HVALS', keys.tokens()), amounts.format(clock.now))
