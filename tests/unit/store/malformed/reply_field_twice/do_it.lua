-- Do it.
-- @reply done more more

return reply.done()
