-- Do it.
-- @args now
-- @args id
-- @reply done

redis.call('GET', args.now)
return reply.done()
