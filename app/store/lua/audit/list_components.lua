-- List a page of the components that have a policy in a pool. The cursor is 0 at the end.
-- @reads pool_policies
-- @args pool cursor count
-- @reply found components cursor

local page = redis.call('SSCAN', keys.pool_policies(args.pool), args.cursor, 'COUNT', args.count)
return reply.found(page[2], page[1])
