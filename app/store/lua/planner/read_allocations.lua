-- Read a page of the allocations of a pool, by fence: a part of a snapshot. `last` is the fence of the last one, empty at the end.
-- @use snapshot_rows
-- @reads pool_allocations
-- @args pool after count
-- @reply read allocations victims last

local rows = snapshot_rows.new(args.pool)
local ids = redis.call('ZRANGEBYSCORE', keys.pool_allocations(args.pool), '(' .. args.after, '+inf', 'WITHSCORES', 'LIMIT', 0, args.count)
for i = 1, #ids, 2 do rows.add_allocation(ids[i]) end
return reply.read(rows.allocations, rows.victims, #ids == 2 * tonumber(args.count) and ids[#ids])
