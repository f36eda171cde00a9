-- Do it.
-- @args now
-- @args id now
-- @reply done

redis.call('GET', args.now .. args.id)
return reply.done()
