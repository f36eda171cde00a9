-- Policy templates: the policy of `type/prefix*` makes an instance, a policy of its own, for each component that asks and has none. An
-- instance has the quotas and settings of its template, and names it in the field `template`. It is planned in memory, and written when
-- a request of the component is granted or queued.
-- Callers check `is_planned` or `fields.template` first, so that a call without a template does not load this library.
-- @use accounts amounts clock pool_changes
-- @reads pool_queue_syncs pool_unfinished
-- @writes component_pools meta policy pool pool_instances pool_policies template_checks templates

-- Fields of an instance that are its own state. The template decides all others.
local STATE = {creation_number = true, queue_length = true, reserved_times = true, status = true, below_ms = true, over_ms = true, template = true}
local PEAK = '^peak%.'

function templates.is_template(component) return string.sub(component, -1) == '*' end

-- Return a setting of a template: its own, else that of the pool.
function templates.setting(pool, template, name, default) return tonumber(template.fields[name] or pool.fields[name] or default) end

-- Return the most instances that a template may have at a time.
function templates.max_instances(pool, template) return templates.setting(pool, template, 'template_max', const.TEMPLATE_MAX) end

-- Return how long (ms) an instance is kept without use.
function templates.idle_ms(pool, template) return templates.setting(pool, template, 'template_idle_s', const.TEMPLATE_IDLE_S) * 1000 end

-- True if a policy has neither waiters nor allocations.
function templates.is_idle(policy) return tonumber(policy.fields.queue_length or 0) == 0 and (policy.used.step_run or 0) == 0 end

-- True if the pool has unfinished work. Then the pool may have a lane whose waiters the policy does not count yet.
function templates.has_unfinished_work(pool_name) return redis.call('EXISTS', keys.pool_unfinished(pool_name), keys.pool_queue_syncs(pool_name)) > 0 end

-- Count a new template of the workspace.
function templates.register(pattern)
  redis.call('HINCRBY', keys.templates(), pattern, 1)
  redis.call('HINCRBY', keys.meta(), 'templates', 1)
end

-- Call `add` with the name and value of each field of a policy that a template decides.
local function for_each_decided(policy, add)
  for _, column in ipairs({'limit', 'reserved'}) do
    for key, units in pairs(policy[column]) do add(column .. ':' .. key, amounts.format(units)) end
  end
  for name, value in pairs(policy.fields) do
    if not STATE[name] and not string.find(name, PEAK) then add(name, value) end
  end
end

-- Return the names of the fields of an instance that its template decides.
function templates.decided_names(policy)
  local names = {}
  for_each_decided(policy, function(name) names[#names + 1] = name end)
  return names
end

-- Return the fields that a template gives an instance, name and value in turn.
function templates.fields(template)
  local fields = {'template', template.component}
  for_each_decided(template, function(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end)
  return fields
end

-- Return whether a template has all instances that it may have; then the highest and the present number of instances.
function templates.is_full(pool, pattern)
  local most, present = templates.max_instances(pool, accounts.policy(pool.name, pattern)), redis.call('ZCARD', keys.pool_instances(pool.name, pattern))
  return present >= most, most, present
end

-- Return a refusal if the template of a planned policy has the most instances already; else nil.
function templates.refusal(path)
  local pool, pattern = path[#path], path[1].fields.template
  local is_full, most, present = templates.is_full(pool, pattern)
  if is_full then return {'template/' .. pattern, 'template_max', amounts.format(most), amounts.format(present)} end
end

local function schedule_check(pool, pattern, at_ms) redis.call('ZADD', keys.template_checks(), 'NX', amounts.format(at_ms), pool.name .. ' ' .. pattern) end

-- Note that an instance was active now.
function templates.touch(pool, policy)
  redis.call('ZADD', keys.pool_instances(pool.name, policy.fields.template), amounts.format(clock.now), policy.component)
end

-- Remove a policy from the instances of a template.
function templates.detach(pool, pattern, component)
  redis.call('ZREM', keys.pool_instances(pool.name, pattern), component)
  redis.call('HINCRBY', pool.key, 'instances', -1)
end

-- Write a planned policy. It replaces an idle instance of another template.
function templates.write(path)
  local policy, pool = path[1], path[#path]
  local template, component = accounts.policy(pool.name, policy.fields.template), policy.component
  local former_pattern = redis.call('HGET', policy.key, 'template')
  if former_pattern then
    templates.detach(pool, former_pattern, component)
    redis.call('DEL', policy.key)
  end
  policy.is_planned = false
  redis.call('HSET', policy.key, 'creation_number', amounts.format(redis.call('HINCRBY', pool.key, 'last_creation_number', 1)), unpack(templates.fields(template)))
  redis.call('SADD', keys.pool_policies(pool.name), component)
  redis.call('ZADD', keys.component_pools(component), '-' .. template.fields.priority, pool.name)
  redis.call('HINCRBY', pool.key, 'instances', 1)
  templates.touch(pool, policy)
  schedule_check(pool, template.component, clock.now + templates.idle_ms(pool, template))
  pool_changes.add(pool.name, {policy.id})
end
