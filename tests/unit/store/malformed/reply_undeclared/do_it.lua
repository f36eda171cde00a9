-- Do it.
-- @reply done

if redis.call('TIME') then return reply.refused('late') end
return reply.done()
