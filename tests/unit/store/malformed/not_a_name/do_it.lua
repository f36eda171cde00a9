-- Do it.
-- @reply end

return reply.done()
