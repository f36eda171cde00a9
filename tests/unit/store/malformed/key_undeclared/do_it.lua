-- Do it.
-- @reads pools
-- @reply done

redis.call('GET', keys.pools())

redis.call('GET', keys.pool('a'))
return reply.done()
