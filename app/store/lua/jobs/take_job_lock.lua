-- Take the lock of a periodic job in this workspace, unless another token holds it. The lock expires by itself.
-- @writes job_lock
-- @args job token ttl_ms
-- @reply taken
-- @reply held

local holder = redis.call('GET', keys.job_lock(args.job))
if holder and holder ~= args.token then return reply.held() end

redis.call('SET', keys.job_lock(args.job), args.token, 'PX', args.ttl_ms)
return reply.taken()
