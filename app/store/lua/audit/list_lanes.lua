-- List every lane of the components that have a policy in a pool.
-- @reads component_lanes pool_policies
-- @args pool
-- @reply found lanes

local lanes = {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  for _, lane in ipairs(redis.call('SMEMBERS', keys.component_lanes(component))) do lanes[#lanes + 1] = lane end
end
return reply.found(lanes)
