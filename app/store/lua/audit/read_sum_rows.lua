-- Read a page of the allocations or of the owners of victim holds of a pool (`kind`), for its sums. The cursor is 0 at the end.
-- @use audit_rows
-- @reads pool_allocations pool_holds
-- @args pool kind cursor count
-- @reply read rows cursor

local is_hold, rows = args.kind == 'holds', {}
local page = is_hold and redis.call('HSCAN', keys.pool_holds(args.pool), args.cursor, 'COUNT', args.count)
  or redis.call('ZSCAN', keys.pool_allocations(args.pool), args.cursor, 'COUNT', args.count)
for i = 1, #page[2], 2 do rows[#rows + 1] = (is_hold and audit_rows.hold or audit_rows.allocation)(args.pool, page[2][i]) end
return reply.read(rows, page[1])
