-- Do it.
-- @reads pool pools
-- @reply done

redis.call('GET', keys.pools())
return reply.done()
