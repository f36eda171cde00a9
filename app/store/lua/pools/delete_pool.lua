-- Delete a pool without waiters and allocations, with its groups and policies.
-- @use accounts deletions operation_replies
-- @reads pool_allocations pool_lanes pool_queue
-- @args op name
-- @reply deleted
-- @reply in_use queued active
-- @reply not_found

if operation_replies.find(args.op) then return reply.deleted() end
local pool = accounts.pool(args.name)
if not pool then return reply.not_found() end
local queued, active = redis.call('ZCARD', keys.pool_queue(args.name)), redis.call('ZCARD', keys.pool_allocations(args.name))
if queued + active + redis.call('EXISTS', keys.pool_lanes(args.name)) > 0 then return reply.in_use(queued, active) end

deletions.pool(pool)
operation_replies.save(args.op)
return reply.deleted()
