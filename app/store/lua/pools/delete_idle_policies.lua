-- Delete a page of the instances of a template. If any instance of the page has waiters or allocations, delete none.
-- @use accounts deletions idle_policies templates
-- @reads pool_instances
-- @writes unfinished
-- @args pool template count
-- @reply deleted left
-- @reply in_use component queued active
-- @reply unfinished
-- @reply not_found

local pool = accounts.pool(args.pool)
local template = pool and accounts.policy(args.pool, args.template)
if not template then return reply.not_found() end
if templates.has_unfinished_work(args.pool) then  -- its lanes may refer to the policies
  redis.call('SADD', keys.unfinished(), args.pool)
  return reply.unfinished()
end
local components = redis.call('ZRANGE', keys.pool_instances(args.pool, args.template), 0, tonumber(args.count) - 1)
for _, component in ipairs(components) do
  local queued, active = deletions.use_of(accounts.policy(args.pool, component))
  if queued + active > 0 then return reply.in_use(component, queued, active) end
end

for _, component in ipairs(components) do idle_policies.delete(pool, component) end
return reply.deleted(redis.call('ZCARD', keys.pool_instances(args.pool, args.template)))
