-- Release the lock of a periodic job, if this token still holds it.
-- @writes job_lock
-- @args task token
-- @reply given_back

if redis.call('GET', keys.job_lock(args.task)) == args.token then redis.call('DEL', keys.job_lock(args.task)) end
return reply.given_back()
