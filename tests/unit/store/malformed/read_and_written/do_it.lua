-- Do it.
-- @reads pool
-- @writes pool
-- @reply done

redis.call('HSET', keys.pool('p'), 'a', 1)
return reply.done()
