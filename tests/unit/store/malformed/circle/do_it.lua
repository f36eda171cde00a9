-- Do it.
-- @use a
-- @reply done

a.count()
return reply.done()
