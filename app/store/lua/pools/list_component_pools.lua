-- The pools a component has a policy in, the most preferred first.
-- @keys component
-- @args component
-- @reply found pools

return reply.found(redis.call('ZRANGE', keys.component(args.component), 0, -1))
