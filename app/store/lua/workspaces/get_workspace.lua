-- Read the settings of the workspace.
-- @keys meta
-- @reply found unmanaged

return reply.found(redis.call('HGET', keys.meta(), 'unmanaged'))
