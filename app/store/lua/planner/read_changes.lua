-- Read a bounded part of a snapshot: the allocations, victims and accounts of a pool that changed since a change number. The rows are
-- complete up to the change number of the reply. If the changes are no longer kept, the reply is `lost`.
-- @use accounts snapshot_changes
-- @args pool event number most
-- @reply read event number allocations victims accounts more
-- @reply lost
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local changes = snapshot_changes.read(pool, args.event, tonumber(args.number), tonumber(args.most))
if not changes then return reply.lost() end
return reply.read(changes.event, changes.number, changes.rows.allocations, changes.rows.victims, changes.rows.accounts, changes.more)
