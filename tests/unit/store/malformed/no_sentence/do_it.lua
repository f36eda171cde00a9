-- @reply done

return reply.done()
