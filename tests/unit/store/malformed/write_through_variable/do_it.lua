-- Do it.
-- @reply done

local account = {key = 'a'}
redis.call('HSET', account.key, 'a', 1)
return reply.done()
