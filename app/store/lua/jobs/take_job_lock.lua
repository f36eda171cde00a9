-- Take the lock of a periodic job in this workspace, unless another token holds it. The lock expires by itself.
-- @use job_locks
-- @writes job_lock
-- @args job token ttl_ms
-- @reply taken
-- @reply held

if job_locks.other_holder(args.job, args.token, args.ttl_ms) then return reply.held() end

redis.call('SET', keys.job_lock(args.job), args.token, 'PX', args.ttl_ms)
return reply.taken()
