-- Give the lease of a task back, if it is still the one this token took.
-- @keys lease
-- @args task token
-- @reply given_back

if redis.call('GET', keys.lease(args.task)) == args.token then redis.call('DEL', keys.lease(args.task)) end
return reply.given_back()
