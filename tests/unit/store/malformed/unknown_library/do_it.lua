-- Do it.
-- @use pools
-- @reply done

pools.count()
return reply.done()
