-- List a page of the requests that wait (`waiting`) or are allocated (`leases`). The cursor is 0 at the end. A request that comes or goes
-- between two pages may be left out; its event names it.
-- @reads leases waiting
-- @args kind cursor count
-- @reply found ids cursor

local page = redis.call('ZSCAN', args.kind == 'waiting' and keys.waiting() or keys.leases(), args.cursor, 'COUNT', args.count)
local ids = {}
for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
return reply.found(ids, page[1])
