-- The rows of a group or a policy for a workspace copy, of a policy also its other keys: key, type and values.
-- @reads component_pools group policy pool_groups pool_policies pool_run_times pool_satisfaction

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

-- Add the rows of a policy.
function account_copies.add_policy(rows, pool_name, component)
  local satisfaction = redis.call('ZSCORE', keys.pool_satisfaction(pool_name), component)
  add(rows, keys.policy(pool_name, component), 'hash', without_queue_length(redis.call('HGETALL', keys.policy(pool_name, component))))
  add(rows, keys.pool_policies(pool_name), 'set', {component})
  add(rows, keys.pool_run_times(pool_name, component), 'hash', redis.call('HGETALL', keys.pool_run_times(pool_name, component)))
  add(rows, keys.pool_satisfaction(pool_name), 'zset', satisfaction and {component, satisfaction} or {})
  add(rows, keys.component_pools(component), 'zset', redis.call('ZRANGE', keys.component_pools(component), 0, -1, 'WITHSCORES'))
end
