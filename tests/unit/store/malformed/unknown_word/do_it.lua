-- Do it.
-- @returns done
-- @reply done

return reply.done()
