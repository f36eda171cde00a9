-- Do it.
-- @reply done

return reply.done()
