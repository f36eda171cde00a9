-- Do it.
-- @keys pool pools
-- @reply done

redis.call('GET', keys.pools())
return reply.done()
