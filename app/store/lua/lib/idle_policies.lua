-- Idle instances of templates: they are deleted with all their Redis keys after `template_idle_s` without use.
-- @use accounts amounts clock deletions pool_changes templates work_budget
-- @reads pool_instances
-- @writes template_checks

local PAGE = 100
local UNFINISHED_INTERVAL_MS = 1000  -- between two checks of a template while its pool has unfinished work
local MAX_INTERVAL_MS = 60000  -- between two checks of a template: a changed setting counts from the next one on

-- Delete an instance.
function idle_policies.delete(pool, component)
  deletions.policy(pool.name, component)
  pool_changes.add(pool.name, {'policy:' .. component})
end

-- Return the time (ms) of the next check of a template: when its oldest instance may be due, or earlier; nil if it has no instance.
local function next_check(pool, template)
  local oldest = redis.call('ZRANGE', keys.pool_instances(pool.name, template.component), 0, 0, 'WITHSCORES')
  if not oldest[1] then return nil end
  return math.min(tonumber(oldest[2]) + templates.idle_ms(pool, template), clock.now + MAX_INTERVAL_MS)
end

-- Delete the instances of a template that have been idle for long enough. Return their number, and true if more may be due.
local function delete_idle(pool, template)
  local count, key = 0, keys.pool_instances(pool.name, template.component)
  local due_ms = amounts.format(clock.now - templates.idle_ms(pool, template))
  local components = redis.call('ZRANGEBYSCORE', key, '-inf', due_ms, 'LIMIT', 0, PAGE)
  for i, component in ipairs(components) do
    if i > 1 and work_budget.is_used_up() then return count, true end
    local policy = accounts.policy(pool.name, component)
    if policy and not templates.is_idle(policy) then templates.touch(pool, policy)
    else
      idle_policies.delete(pool, component)
      count = count + 1
    end
  end
  return count, #components == PAGE
end

-- Check up to `most` templates that are due. Return the number of deleted instances, and true if more may be due.
function idle_policies.delete_due(most)
  local rows, count = redis.call('ZRANGEBYSCORE', keys.template_checks(), '-inf', amounts.format(clock.now), 'LIMIT', 0, most), 0
  for i, row in ipairs(rows) do
    if i > 1 and work_budget.is_used_up() then return count, true end
    local pool_name, pattern = string.match(row, '^(%S+) (%S+)$')
    local pool, template, deleted, more = accounts.pool(pool_name), accounts.policy(pool_name, pattern), 0, false
    local is_unfinished = templates.has_unfinished_work(pool_name)
    if pool and template and not is_unfinished then deleted, more = delete_idle(pool, template) end
    count = count + deleted
    if more then return count, true end
    local next_ms = pool and template and (is_unfinished and clock.now + UNFINISHED_INTERVAL_MS or next_check(pool, template))
    if next_ms then redis.call('ZADD', keys.template_checks(), amounts.format(math.max(next_ms, clock.now + 1)), row)
    else redis.call('ZREM', keys.template_checks(), row) end
  end
  return count, #rows == most
end
