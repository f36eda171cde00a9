-- Read a page of the groups or of the policies of a pool (`kind`): a part of a snapshot. The cursor is 0 at the end.
-- @use snapshot_rows
-- @reads pool_groups pool_policies
-- @args pool kind cursor count
-- @reply read accounts cursor

local rows = snapshot_rows.new(args.pool)
local key = args.kind == 'group' and keys.pool_groups(args.pool) or keys.pool_policies(args.pool)
local page = redis.call('SSCAN', key, args.cursor, 'COUNT', args.count)
for _, name in ipairs(page[2]) do rows.add_account(args.kind .. ':' .. name) end
return reply.read(rows.accounts, page[1])
