-- Do it.
-- @use
-- @reply done

return reply.done()
