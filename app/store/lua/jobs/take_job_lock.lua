-- Take the lease of a task in this workspace, unless another has it. It ends by itself, should nobody give it back.
-- @keys job_lock
-- @args task token ttl_ms
-- @reply taken
-- @reply held

local holder = redis.call('GET', keys.job_lock(args.task))
if holder and holder ~= args.token then return reply.held() end

redis.call('SET', keys.job_lock(args.task), args.token, 'PX', args.ttl_ms)
return reply.taken()
