-- A change of a template changes its instances, a bounded number at a time, before the lanes of the pool are rechecked.
-- @use accounts pool_changes templates unfinished_items work_budget
-- @reads pool_instances
-- @writes component_pools policy pool_template_updates

local KIND = 'template_updates'
local PAGE = 32

local is_first_page = true  -- a call changes one page even if the work of other pools has used up its budget

-- Note as unfinished work that all instances of a template have to be changed.
function template_updates.start(pool, pattern)
  local count = redis.call('ZUNIONSTORE', keys.pool_template_updates(pool.name, pattern), 1, keys.pool_instances(pool.name, pattern))
  if count > 0 then unfinished_items.note(pool, KIND, pattern) end
end

-- Note the unfinished change of a template in a workspace copy, if the copied workspace has one.
function template_updates.resume_later(pool_name, pattern)
  if redis.call('EXISTS', keys.pool_template_updates(pool_name, pattern)) == 1 then unfinished_items.note(accounts.pool(pool_name), KIND, pattern) end
end

-- Replace the fields of an instance that its template decides. Return false if the policy is no longer an instance of it.
local function update(pool, template, component)
  local policy, fields, is_kept, removed = accounts.policy(pool.name, component), templates.fields(template), {}, {}
  if not policy or policy.fields.template ~= template.component then return false end
  for i = 1, #fields, 2 do is_kept[fields[i]] = true end
  for _, name in ipairs(templates.decided_names(policy)) do
    if not is_kept[name] then removed[#removed + 1] = name end
  end
  if #removed > 0 then redis.call('HDEL', policy.key, unpack(removed)) end
  redis.call('HSET', policy.key, unpack(fields))
  redis.call('ZADD', keys.component_pools(component), '-' .. template.fields.priority, pool.name)
  accounts.forget(policy.key)
  return true
end

-- Change a page of the instances of a template that are not changed yet.
local function update_page(pool, template, key)
  local components, changed = redis.call('ZRANGE', key, 0, PAGE - 1), {}
  for _, component in ipairs(components) do
    if update(pool, template, component) then changed[#changed + 1] = 'policy:' .. component end
  end
  if #components > 0 then redis.call('ZREM', key, unpack(components)) end
  pool_changes.add(pool.name, changed)
end

-- Change the instances of changed templates, until the work budget is used up. Return true if all are changed.
function template_updates.resume(pool)
  return unfinished_items.resume(pool, KIND, function(pattern)
    local key, template = keys.pool_template_updates(pool.name, pattern), accounts.policy(pool.name, pattern)
    while template and redis.call('EXISTS', key) == 1 do
      if work_budget.is_used_up() and not is_first_page then return false end
      is_first_page = false
      update_page(pool, template, key)
    end
    redis.call('DEL', key)
    return true
  end)
end
