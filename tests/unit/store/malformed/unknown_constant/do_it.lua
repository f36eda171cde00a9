-- Do it.
-- @reply done

local all = const.EXACT + const.INFINITE
return reply.done()
