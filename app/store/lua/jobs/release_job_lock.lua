-- Give the lease of a task back, if it is still the one this token took.
-- @keys job_lock
-- @args task token
-- @reply given_back

if redis.call('GET', keys.job_lock(args.task)) == args.token then redis.call('DEL', keys.job_lock(args.task)) end
return reply.given_back()
