-- Do it.
-- @reads pool
-- @reply done

local count, key = 1, keys.pool('p')
redis.call('HSET', key, 'a', count)
return reply.done()
