-- Do it.
-- @reads pool cellar
-- @reply done

redis.call('GET', keys.pool() .. keys.cellar())
return reply.done()
