-- Do it.
-- @reply done

local all = const.MAX_AMOUNT + const.INFINITE
return reply.done()
