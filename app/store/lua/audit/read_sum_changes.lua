-- Read a bounded part of the rows of a pool that changed since a change number, for its sums: allocations, owners of victim holds,
-- waiters, groups and policies. The last part (`more` is empty) also has the pool and the owner of its patience hold, read at the same
-- moment. If the pool was declared meanwhile, or the changes are no longer kept, the reply is `moved`.
-- @use accounts audit_rows snapshot_changes
-- @reads pool
-- @args pool event number rules most
-- @reply read event number allocations holds waiters accounts pool patience more
-- @reply moved
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local changes = (pool.fields.rules or '0') == args.rules and snapshot_changes.read(pool, args.event, tonumber(args.number), tonumber(args.most))
if not changes then return reply.moved() end
local allocations, holds, waiters = {}, {}, {}
for i, id in ipairs(changes.request_ids) do
  allocations[i] = audit_rows.allocation(args.pool, id)
  holds[i] = audit_rows.hold(args.pool, id)
  waiters[i] = audit_rows.waiter(args.pool, id)
end
return reply.read(changes.event, changes.number, allocations, holds, waiters, changes.rows.accounts, redis.call('HGETALL', keys.pool(args.pool)),
  audit_rows.patience_hold(pool), changes.more)
