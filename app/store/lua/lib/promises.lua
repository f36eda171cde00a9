-- The units that a parent has reserved for a child: for a declared policy its reserved amounts, for a template those of all the
-- instances that it may have, and for an instance none.
-- @use accounts amounts templates
-- @reads pool_instances pool_policies

-- Return the units (key → amount) that the parent of an account has reserved for it. The units of an instance are part of the
-- promise to its template.
function promises.of(account)
  if account.fields.template then return {} end
  return promises.wanted({reserved = account.reserved, times = tonumber(account.fields.reserved_times)})
end

-- Return the units that the parent of an account would reserve for it. `wanted`: the reserved amounts, and how often they count.
function promises.wanted(wanted)
  local promised = {}
  for key, amount in pairs(wanted.reserved) do promised[key] = amount * (wanted.times or 1) end
  return promised
end

-- Return how often the reserved amounts of a template count at its parent: once for each instance that it may have, or that it
-- has. The two differ because a lower `template_max` deletes no instance.
local function count_times(pool, component, max_instances)
  return math.max(max_instances, redis.call('ZCARD', keys.pool_instances(pool.name, component)))
end

-- Return this number for an account. The settings (name and value) are its own, else those of the pool. It is 1 unless the
-- account is a template.
function promises.times(pool, component, settings)
  if not templates.is_template(component) then return 1 end
  local account = {fields = {}}
  for _, setting in ipairs(settings) do account.fields[setting[1]] = setting[2] ~= '' and setting[2] or nil end
  return count_times(pool, component, templates.max_instances(pool, account))
end

-- Return the promises that change if the pool gets another `template_max`: those of its templates, each with the amounts before and
-- after. Return no promises without a new value (nil).
function promises.changed(pool, new_max)
  local changes = {}
  for _, name in ipairs(new_max and redis.call('SMEMBERS', keys.pool_policies(pool.name)) or {}) do
    local template = templates.is_template(name) and accounts.policy(pool.name, name)
    if template and not template.fields.template_max and next(template.reserved) then
      local times = count_times(pool, name, tonumber(new_max) or const.TEMPLATE_MAX)
      local group = template.fields.group
      changes[#changes + 1] = {template = template, parent = group and accounts.group(pool.name, group) or pool, times = times,
        before = promises.of(template), after = promises.wanted({reserved = template.reserved, times = times})}
    end
  end
  return changes
end

-- Return the refusal of changed promises that exceed what a parent has: code, account, key, promised and available units; nil if all
-- fit. `capacity`: key → the new capacity of the pool, for keys whose capacity changes in the same call.
function promises.refusal(pool, changes, capacity)
  local totals = {}
  for _, change in ipairs(changes) do
    for key, units in pairs(change.after) do
      local parent = change.parent
      local available = parent == pool and (capacity[key] or pool.limit[key]) or parent.reserved[key] or 0
      local place = parent.id .. ' ' .. key
      totals[place] = (totals[place] or parent.children_reserved[key] or 0) - change.before[key] + units
      if totals[place] > available then
        return {'overpromised', parent.id, key, amounts.format(math.min(totals[place], 2 ^ 62)), amounts.format(available)}
      end
    end
  end
end
