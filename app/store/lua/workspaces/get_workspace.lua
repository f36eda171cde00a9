-- What is set for the workspace as a whole.
-- @keys meta
-- @reply found unmanaged

return reply.found(redis.call('HGET', keys.meta(), 'unmanaged'))
