-- Read a page of the allocations, the owners of victim holds or the waiters of a pool (`kind`), for its sums. The cursor is 0 at the end.
-- @use audit_rows
-- @reads pool_allocations pool_holds pool_queue
-- @args pool kind cursor count
-- @reply read rows cursor

local PAGES = {
  allocations = function() return redis.call('ZSCAN', keys.pool_allocations(args.pool), args.cursor, 'COUNT', args.count) end,
  holds = function() return redis.call('HSCAN', keys.pool_holds(args.pool), args.cursor, 'COUNT', args.count) end,
  waiters = function() return redis.call('ZSCAN', keys.pool_queue(args.pool), args.cursor, 'COUNT', args.count) end,
}
local ROWS = {allocations = audit_rows.allocation, holds = audit_rows.hold, waiters = audit_rows.waiter}

local rows, page = {}, PAGES[args.kind]()
for i = 1, #page[2], 2 do rows[#rows + 1] = ROWS[args.kind](args.pool, page[2][i]) end
return reply.read(rows, page[1])
