-- Do it.
-- @use pools
-- @reply done

-- pools.count()
local text = 'pools.count()' .. [[ pools.count() ]]
return reply.done(text)
