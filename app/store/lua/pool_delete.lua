-- Delete a pool nobody waits for or holds anything of, with its groups and policies.
-- @use accounts operations
-- @keys pool_queue pool_active pool_lanes pool_policies pool_groups pool_holds pool_todo component group policy pools todo
-- @args op name
-- @reply deleted
-- @reply in_use queued active
-- @reply not_found

if operations.done(args.op) then return reply.deleted() end
local pool = accounts.pool(args.name)
if not pool then return reply.not_found() end
local queued, active = redis.call('ZCARD', keys.pool_queue(args.name)), redis.call('ZCARD', keys.pool_active(args.name))
if queued + active + redis.call('EXISTS', keys.pool_lanes(args.name)) > 0 then return reply.in_use(queued, active) end

for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.name))) do
  redis.call('ZREM', keys.component(component), args.name)
  redis.call('DEL', keys.policy(args.name, component))
end
for _, group in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.name))) do
  redis.call('DEL', keys.group(args.name, group))
end
redis.call('DEL', pool.key, keys.pool_policies(args.name), keys.pool_groups(args.name), keys.pool_holds(args.name), keys.pool_todo(args.name))
redis.call('HDEL', keys.pools(), args.name)
redis.call('SREM', keys.todo(), args.name)
operations.note(args.op)
return reply.deleted()
