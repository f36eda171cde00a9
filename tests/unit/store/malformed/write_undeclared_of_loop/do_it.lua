-- Do it.
-- @reads pools pool
-- @reply done

for _, key in ipairs({keys.pools(), keys.pool('p')}) do redis.call('DEL', key) end
return reply.done()
