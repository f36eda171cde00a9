-- Read the usage samples of a pool, oldest first, and the creation numbers of its policies.
-- @reads policy pool pool_policies pool_usage_history
-- @args pool
-- @reply found samples numbers
-- @reply not_found

if redis.call('EXISTS', keys.pool(args.pool)) == 0 then return reply.not_found() end
local numbers = {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  numbers[#numbers + 1] = component
  numbers[#numbers + 1] = redis.call('HGET', keys.policy(args.pool, component), 'creation_number') or ''
end
return reply.found(redis.call('LRANGE', keys.pool_usage_history(args.pool), 0, -1), numbers)
