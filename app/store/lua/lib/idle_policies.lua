-- Policies of templates without use: they are deleted with all their keys when their time is over.
-- @use accounts amounts clock deletions pool_changes templates work_budget
-- @reads pool_instances
-- @writes template_checks

local PAGE = 100
local UNFINISHED_APART_MS = 1000  -- from one check of a template to the next while its pool has unfinished work
local MOST_APART_MS = 60000  -- from one check of a template to the next: a changed setting counts from then on

-- Return how many waiters a policy has, and how many allocations.
function idle_policies.use_of(policy) return tonumber(policy.fields.queue_length or 0), policy.used.step_run or 0 end

-- Delete a policy of a template.
function idle_policies.delete(pool, component)
  deletions.policy(pool.name, component)
  pool_changes.add(pool.name, {'policy:' .. component})
end

-- Return when the next policy of a template may have been idle for long enough; nil if it has none.
local function next_check(pool, template)
  local oldest = redis.call('ZRANGE', keys.pool_instances(pool.name, template.component), 0, 0, 'WITHSCORES')
  if not oldest[1] then return nil end
  return math.min(tonumber(oldest[2]) + templates.idle_ms(pool, template), clock.now + MOST_APART_MS)
end

-- Delete the idle policies of a template. Return their number, and whether the work budget was used up before the last.
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

-- Check up to `most` templates that are due. Return how many policies were deleted, and whether more may be due.
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
    local next_ms = pool and template and (is_unfinished and clock.now + UNFINISHED_APART_MS or next_check(pool, template))
    if next_ms then redis.call('ZADD', keys.template_checks(), amounts.format(math.max(next_ms, clock.now + 1)), row)
    else redis.call('ZREM', keys.template_checks(), row) end
  end
  return count, #rows == most
end
