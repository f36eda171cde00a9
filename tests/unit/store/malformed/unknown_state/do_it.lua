-- Do it.
-- @reply done

local state = states.queued
state = states.waiting
return reply.done()
