-- Compare the instances of templates with the indexes of the templates. By `kind`: `policies`, a page of the policies of a pool (the
-- reply names the templates among them); `instances`, a page of the index of one template; `counts`, the stored numbers.
-- @use accounts amounts audit_findings clock templates
-- @reads component_pools pool_policies
-- @writes meta policy pool pool_instances template_checks templates
-- @args now pool kind template cursor count repair
-- @reply audited differences templates cursor
-- @reply not_found

clock.start(args.now)
audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local function check_policy(component)
  local key = keys.policy(args.pool, component)
  local pattern = redis.call('HGET', key, 'template')
  if not pattern or redis.call('ZSCORE', keys.pool_instances(args.pool, pattern), component) then return end
  local is_declared = redis.call('SISMEMBER', keys.pool_policies(args.pool), pattern) == 0
  local location = args.pool .. ' policy:' .. component
  if not audit_findings.add('template', location, is_declared and pattern or 'not listed', is_declared and nil or 'listed') then return end
  if is_declared then redis.call('HDEL', key, 'template')
  else redis.call('ZADD', keys.pool_instances(args.pool, pattern), amounts.format(clock.now), component) end
end

-- Check that the workspace lists a template, and that it is checked for idle instances as long as it has instances.
local function check_template(pattern)
  if redis.call('HEXISTS', keys.templates(), pattern) == 0 and audit_findings.add('template', pattern, nil, 'listed') then
    redis.call('HSET', keys.templates(), pattern, redis.call('ZCARD', keys.component_pools(pattern)))
  end
  local row = args.pool .. ' ' .. pattern
  if redis.call('EXISTS', keys.pool_instances(args.pool, pattern)) == 0 or redis.call('ZSCORE', keys.template_checks(), row) then return end
  if audit_findings.add('template', row, 'not checked', 'checked') then redis.call('ZADD', keys.template_checks(), amounts.format(clock.now), row) end
end

local function check_instance(component)
  if redis.call('HGET', keys.policy(args.pool, component), 'template') == args.template then return end
  if audit_findings.add('template', args.pool .. ' ' .. args.template .. ' ' .. component, 'listed', nil) then
    redis.call('ZREM', keys.pool_instances(args.pool, args.template), component)
  end
end

local function check_number(key, field, location, expected)
  local stored = redis.call('HGET', key, field) or '0'
  if tonumber(stored) == expected or not audit_findings.add('counter', location, stored, amounts.format(expected)) then return end
  if expected > 0 then redis.call('HSET', key, field, amounts.format(expected)) else redis.call('HDEL', key, field) end
end

-- Compare the stored numbers of the pool and of the workspace.
local function check_counts()
  local instances, total = 0, 0
  for _, pattern in ipairs(redis.call('HKEYS', keys.templates())) do
    local pools = redis.call('ZCARD', keys.component_pools(pattern))
    check_number(keys.templates(), pattern, 'pools of ' .. pattern, pools)
    instances, total = instances + redis.call('ZCARD', keys.pool_instances(args.pool, pattern)), total + pools
  end
  check_number(keys.meta(), 'templates', 'templates', total)
  check_number(pool.key, 'instances', args.pool .. ' instances', instances)
end

local patterns, cursor = {}, '0'
if args.kind == 'counts' then check_counts()
elseif args.kind == 'instances' then
  local page = redis.call('ZSCAN', keys.pool_instances(args.pool, args.template), args.cursor, 'COUNT', args.count)
  for i = 1, #page[2], 2 do check_instance(page[2][i]) end
  cursor = page[1]
else
  local page = redis.call('SSCAN', keys.pool_policies(args.pool), args.cursor, 'COUNT', args.count)
  for _, component in ipairs(page[2]) do
    if templates.is_template(component) then
      patterns[#patterns + 1] = component
      check_template(component)
    end
    check_policy(component)
  end
  cursor = page[1]
end
return reply.audited(audit_findings.list(), patterns, cursor)
