-- Do it.
-- @reply done
-- @reply done more

return reply.done()
