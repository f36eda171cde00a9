-- Begin to compare the sums of a pool: return its change number and the number of its rules.
-- @use accounts amounts snapshot_changes
-- @args pool
-- @reply started event number rules
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local event, number = snapshot_changes.number(args.pool)
return reply.started(event, amounts.format(number), pool.fields.rules or '0')
