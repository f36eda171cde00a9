-- The templates that a component matches: `*` stands for the rest of its name, and the longest template of a pool wins.
-- @use accounts templates
-- @reads component_pools templates

-- Return pool → the longest of its templates that a component matches.
local function longest_matches(component)
  local patterns, by_pool = {}, {}
  for last = #component, string.find(component, '/', 1, true), -1 do patterns[#patterns + 1] = string.sub(component, 1, last) .. '*' end
  local counts = redis.call('HMGET', keys.templates(), unpack(patterns))
  for i, pattern in ipairs(patterns) do
    for _, name in ipairs(counts[i] and redis.call('ZRANGE', keys.component_pools(pattern), 0, -1) or {}) do by_pool[name] = by_pool[name] or pattern end
  end
  return by_pool
end

-- True if an instance keeps its template although another template is the longest match. The reasons: there is no match (the
-- list was lost), lanes or requests refer to the instance, or the other template is full.
local function keeps_template(pool_name, policy, pattern)
  return not pattern or not templates.is_idle(policy) or templates.has_unfinished_work(pool_name) or templates.is_full(accounts.pool(pool_name), pattern)
end

-- Return the pools of a component that asks, by priority: those in which it has a policy, and those in which a template plans one for
-- it. An idle instance is planned anew if its template is no longer the longest match.
function template_matches.pools(component)
  local rows, by_pool = {}, longest_matches(component)
  for _, name in ipairs(redis.call('ZRANGE', keys.component_pools(component), 0, -1)) do
    local policy = accounts.policy(name, component)
    local template = policy.fields.template
    if not template or template == by_pool[name] or keeps_template(name, policy, by_pool[name]) then
      rows[#rows + 1], by_pool[name] = {name = name, priority = tonumber(policy.fields.priority)}, nil
    end
  end
  for name, pattern in pairs(by_pool) do
    local policy = accounts.policy(name, component, templates.fields(accounts.policy(name, pattern)))
    rows[#rows + 1] = {name = name, priority = tonumber(policy.fields.priority)}
  end
  table.sort(rows, function(a, b) return a.priority > b.priority or a.priority == b.priority and a.name < b.name end)
  local names = {}
  for i, row in ipairs(rows) do names[i] = row.name end
  return names
end
