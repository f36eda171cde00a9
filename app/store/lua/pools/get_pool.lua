-- Read a pool and a page of its groups (`kind`) or policies, from a cursor on. If the page of the groups is the last one and there is
-- room in it, the page of the policies follows: a pool with few of both is read at one moment. Return the kind and cursor of the next
-- page; the kind is empty behind the last.
-- @use accounts amounts templates
-- @reads group policy pool pool_allocations pool_groups pool_holds pool_instances pool_policies pool_queue pools
-- @args name kind cursor count
-- @reply found description pool groups policies queued active holds kind cursor
-- @reply not_found

local pool = accounts.pool(args.name)
if not pool then return reply.not_found() end

local groups, policies, kind, cursor = {}, {}, args.kind, args.cursor
if kind == 'groups' then
  local page = redis.call('SSCAN', keys.pool_groups(args.name), cursor, 'COUNT', args.count)
  for i, name in ipairs(page[2]) do groups[i] = {name, redis.call('HGETALL', keys.group(args.name, name))} end
  cursor = page[1]
  if cursor == '0' then kind = 'policies' end
end
if kind == 'policies' and #groups < tonumber(args.count) then
  local page = redis.call('SSCAN', keys.pool_policies(args.name), cursor, 'COUNT', args.count)
  for i, component in ipairs(page[2]) do
    local flat = redis.call('HGETALL', keys.policy(args.name, component))
    local made_policies = templates.is_template(component) and amounts.format(redis.call('ZCARD', keys.pool_instances(args.name, component))) or ''
    policies[i] = {component, flat, redis.call('HGET', keys.policy(args.name, component), 'queue_length') or '0', made_policies}
  end
  cursor = page[1]
  if cursor == '0' then kind = '' end
end
return reply.found(redis.call('HGET', keys.pools(), args.name), redis.call('HGETALL', keys.pool(args.name)), groups, policies,
  redis.call('ZCARD', keys.pool_queue(args.name)), redis.call('ZCARD', keys.pool_allocations(args.name)),
  redis.call('HGETALL', keys.pool_holds(args.name)), kind, cursor)
