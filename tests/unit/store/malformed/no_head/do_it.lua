local x = 1
-- Do it.
-- @reply done

return reply.done()
