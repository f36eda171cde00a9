-- List the pools in which a component has a policy, by priority.
-- @reads component_pools
-- @args component
-- @reply found pools

return reply.found(redis.call('ZRANGE', keys.component_pools(args.component), 0, -1))
