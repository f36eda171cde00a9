-- The pools a component has a policy in, the most preferred first.
-- @keys component_pools
-- @args component
-- @reply found pools

return reply.found(redis.call('ZRANGE', keys.component_pools(args.component), 0, -1))
