-- Do it.
-- @args now
-- @reply done

redis.call('GET', args.now..args.id)
return reply.done()
