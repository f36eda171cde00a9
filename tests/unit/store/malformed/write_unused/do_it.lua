-- Do it.
-- @writes pool
-- @reply done

redis.call('HGET', keys.pool('p'), 'a')
return reply.done()
