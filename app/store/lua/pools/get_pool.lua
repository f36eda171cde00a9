-- Read a pool with its groups and policies at one moment.
-- @use accounts
-- @reads group policy pool pool_allocations pool_groups pool_holds pool_policies pool_queue pools
-- @args name
-- @reply found description pool groups policies queued active holds
-- @reply not_found

local pool = accounts.pool(args.name)
if not pool then return reply.not_found() end

local groups, policies = {}, {}
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.name))) do
  groups[#groups + 1] = {name, redis.call('HGETALL', keys.group(args.name, name))}
end
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.name))) do
  local queued = redis.call('HGET', keys.policy(args.name, component), 'queue_length') or '0'
  policies[#policies + 1] = {component, redis.call('HGETALL', keys.policy(args.name, component)), queued}
end
return reply.found(redis.call('HGET', keys.pools(), args.name), redis.call('HGETALL', keys.pool(args.name)), groups, policies,
  redis.call('ZCARD', keys.pool_queue(args.name)), redis.call('ZCARD', keys.pool_allocations(args.name)),
  redis.call('HGETALL', keys.pool_holds(args.name)))
