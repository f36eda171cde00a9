-- Do it.
-- @reads pool
-- @reply done

local function clear(key, field) redis.call('HDEL', key, field) end

clear(keys.pool('p'), 'a')
return reply.done()
