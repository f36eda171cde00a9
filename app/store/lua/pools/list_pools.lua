-- List the pools of a workspace: name and description in turn.
-- @reads pools
-- @reply found pools

return reply.found(redis.call('HGETALL', keys.pools()))
