-- List a page of the lanes of a component that have waiters. The cursor is 0 at the end.
-- @reads component_lanes
-- @args component cursor count
-- @reply found lanes cursor

local lane_ids, page = {}, redis.call('ZSCAN', keys.component_lanes(args.component), args.cursor, 'COUNT', args.count)
for i = 1, #page[2], 2 do lane_ids[#lane_ids + 1] = page[2][i] end
return reply.found(lane_ids, page[1])
