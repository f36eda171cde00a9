-- Do it.
-- @reads pool
-- @reply done

redis.call('HSET', keys.pool('p'), 'a', redis.call('HGET', keys.pool('p'), 'b'))
return reply.done()
