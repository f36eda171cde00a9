-- Delete a pool, a group or a policy with all its keys. The caller has checked that it is not in use.
-- @use accounts counters run_time_stats templates
-- @writes component_pools group meta policy pool pool_changes pool_groups pool_holds pool_policies pool_preemptions template_checks templates
-- @writes pool_queue_syncs pool_satisfaction pool_template_updates pool_unfinished pool_usage_history pools unfinished

-- Return the number of waiters of a policy and that of its allocations. A policy with either is not deleted.
function deletions.use_of(policy) return tonumber(policy.fields.queue_length or 0), policy.used.step_run or 0 end

-- Delete a group.
function deletions.group(pool, name)
  redis.call('DEL', keys.group(pool, name))
  accounts.forget(keys.group(pool, name))
  redis.call('SREM', keys.pool_groups(pool), name)
end

-- Remove a template from the index of templates. It has no instances any more.
local function forget_template(pool, pattern)
  if redis.call('HINCRBY', keys.templates(), pattern, -1) <= 0 then redis.call('HDEL', keys.templates(), pattern) end
  redis.call('HINCRBY', keys.meta(), 'templates', -1)
  redis.call('ZREM', keys.template_checks(), pool .. ' ' .. pattern)
  redis.call('DEL', keys.pool_template_updates(pool, pattern))
end

-- Delete a policy.
function deletions.policy(pool, component)
  local pattern = redis.call('HGET', keys.policy(pool, component), 'template')
  local count = redis.call('DEL', keys.policy(pool, component))
  if pattern then templates.detach(accounts.pool(pool), pattern, component)
  else redis.call('HINCRBY', keys.meta(), 'policies', -count) end
  if templates.is_template(component) then forget_template(pool, component) end
  accounts.forget(keys.policy(pool, component))
  redis.call('SREM', keys.pool_policies(pool), component)
  redis.call('ZREM', keys.component_pools(component), pool)
  redis.call('ZREM', keys.pool_satisfaction(pool), component)
  run_time_stats.delete(pool, component)
end

-- Delete a pool with its groups and policies.
function deletions.pool(pool)
  redis.call('DEL', keys.pool_usage_history(pool.name))
  for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(pool.name))) do deletions.policy(pool.name, component) end
  for _, group in ipairs(redis.call('SMEMBERS', keys.pool_groups(pool.name))) do deletions.group(pool.name, group) end
  redis.call('DEL', pool.key, keys.pool_holds(pool.name), keys.pool_unfinished(pool.name), keys.pool_queue_syncs(pool.name),
    keys.pool_preemptions(pool.name), keys.pool_changes(pool.name))
  accounts.forget(pool.key)
  counters.delete_pool(pool.name)
  redis.call('HDEL', keys.pools(), pool.name)
  redis.call('SREM', keys.unfinished(), pool.name)
end
