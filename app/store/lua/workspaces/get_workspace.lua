-- Read the settings of the workspace.
-- @reads meta
-- @reply found unmanaged

return reply.found(redis.call('HGET', keys.meta(), 'unmanaged'))
