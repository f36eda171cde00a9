-- Do it.
-- @args now id now
-- @reply done

redis.call('GET', args.now .. args.id)
return reply.done()
