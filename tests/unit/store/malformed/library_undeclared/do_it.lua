-- Do it.
-- @reply done

pools.count()
return reply.done()
