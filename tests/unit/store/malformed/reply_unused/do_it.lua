-- Do it.
-- @reply done
-- @reply refused reason

return reply.done()
