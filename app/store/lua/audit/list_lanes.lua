-- List a page of the lanes of the components that have a policy in a pool, by id, behind a lane.
-- @reads component_lanes pool_policies
-- @args pool after count
-- @reply found lanes

local lane_ids, count, component_from = {}, tonumber(args.count), string.match(args.after, '^[^|]*')
local components = redis.call('SMEMBERS', keys.pool_policies(args.pool))
table.sort(components)
for _, component in ipairs(components) do
  if component >= component_from and #lane_ids < count then
    local from = component == component_from and '(' .. args.after or '-'
    local page = redis.call('ZRANGEBYLEX', keys.component_lanes(component), from, '+', 'LIMIT', 0, count - #lane_ids)
    for _, lane in ipairs(page) do lane_ids[#lane_ids + 1] = lane end
  end
end
return reply.found(lane_ids)
