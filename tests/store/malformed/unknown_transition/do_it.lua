-- Do it.
-- @reply done

local after = transitions.waiting
return reply.done()
