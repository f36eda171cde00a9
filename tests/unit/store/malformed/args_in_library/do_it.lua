-- Do it.
-- @use pools
-- @args now
-- @reply done

pools.count(args.now)
return reply.done()
