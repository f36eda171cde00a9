-- Do it.
-- @reads pools
-- @writes pool
-- @reply done

redis.call(keys.pool('p') and 'HGET' or 'HDEL', keys.pools(), 'a')
redis.call('DEL', keys.pool('p'))
return reply.done()
