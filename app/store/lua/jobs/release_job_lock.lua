-- Release the lock of a periodic job, if this token still holds it.
-- @writes job_lock
-- @args job token
-- @reply given_back

if redis.call('GET', keys.job_lock(args.job)) == args.token then redis.call('DEL', keys.job_lock(args.job)) end
return reply.given_back()
