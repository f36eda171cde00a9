-- Rows of a group or a policy for a workspace copy: Redis key, type and values. A policy has further rows for its other Redis
-- keys. The type `removed` stands for an instance that was deleted meanwhile: its values are Redis keys and members in turn.
-- @reads component_pools group policy pool_groups pool_instances pool_policies pool_run_times pool_satisfaction pool_template_updates

local function add(rows, key, kind, values)
  if #values > 0 then rows[#rows + 1] = {key, kind, values} end
end

-- Add the rows of a group.
function account_copies.add_group(rows, pool_name, group)
  add(rows, keys.group(pool_name, group), 'hash', redis.call('HGETALL', keys.group(pool_name, group)))
  add(rows, keys.pool_groups(pool_name), 'set', {group})
end

-- Return the fields of a policy without the number of its waiters: they are counted when they enter the queues of the copy.
local function without_queue_length(values)
  local kept = {}
  for i = 1, #values, 2 do
    if values[i] ~= 'queue_length' then kept[#kept + 1], kept[#kept + 2] = values[i], values[i + 1] end
  end
  return kept
end

-- Add the score of a policy in a sorted set, if it has one.
local function add_score(rows, key, component)
  local score = redis.call('ZSCORE', key, component)
  add(rows, key, 'zset', score and {component, score} or {})
end

-- Add the removal of an instance. Only the copy knows the template of the instance, so the row names the key of instances
-- without the template.
local function add_removal(rows, pool_name, component)
  local instances = keys.pool_instances(pool_name, '')
  rows[#rows + 1] = {keys.policy(pool_name, component), 'removed', {instances, component, keys.pool_policies(pool_name), component,
    keys.pool_satisfaction(pool_name), component, keys.component_pools(component), pool_name}}
end

-- Add the rows of a policy.
function account_copies.add_policy(rows, pool_name, component)
  local fields = redis.call('HGETALL', keys.policy(pool_name, component))
  if #fields == 0 then return add_removal(rows, pool_name, component) end
  local pattern = redis.call('HGET', keys.policy(pool_name, component), 'template')
  for _, key in ipairs(pattern and {keys.pool_instances(pool_name, pattern), keys.pool_template_updates(pool_name, pattern)} or {}) do
    add_score(rows, key, component)
  end
  add(rows, keys.policy(pool_name, component), 'hash', without_queue_length(fields))
  add(rows, keys.pool_policies(pool_name), 'set', {component})
  add(rows, keys.pool_run_times(pool_name, component), 'hash', redis.call('HGETALL', keys.pool_run_times(pool_name, component)))
  add_score(rows, keys.pool_satisfaction(pool_name), component)
  add(rows, keys.component_pools(component), 'zset', redis.call('ZRANGE', keys.component_pools(component), 0, -1, 'WITHSCORES'))
end
