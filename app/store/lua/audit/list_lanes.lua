-- Every lane of the components a pool has policies for.
-- @keys pool_policies component_lanes
-- @args pool
-- @reply found lanes

local found = {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  for _, lane in ipairs(redis.call('SMEMBERS', keys.component_lanes(component))) do found[#found + 1] = lane end
end
return reply.found(found)
