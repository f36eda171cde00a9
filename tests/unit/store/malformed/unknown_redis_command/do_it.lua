-- Do it.
-- @reply done

redis.call('FLUSHALL')
return reply.done()
