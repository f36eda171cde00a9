-- Whether a request could ever be granted; present use does not matter.
-- @use accounts amounts lanes templates

local function exceeded(path, units, key, code, column)
  local pool = path[#path]
  for _, account in ipairs(path) do
    local bound
    if column == 'limit' then
      if account ~= pool then bound = account.limit[key] end
    elseif account == path[1] and pool.limit[key] then
      bound = account.reserved[key] or 0
    end
    if bound and units.of[key] > bound then
      return table.concat({code, key, amounts.format(units.of[key]), amounts.format(bound), account.id}, ' ')
    end
  end
end

-- Return nil if eligible; else `code key needed bound account` of the first rule that refuses: capacity, limits, the fixed share.
function eligibility.refusal(path, units, fixed)
  local pool = path[#path]
  for _, key in ipairs(units.keys) do
    local capacity = accounts.capacity(pool, key)
    if units.of[key] > capacity then
      local code = capacity == 0 and 'missing_key' or 'exceeds_capacity'
      return table.concat({code, key, amounts.format(units.of[key]), amounts.format(capacity), 'pool'}, ' ')
    end
  end
  for _, key in ipairs(units.keys) do
    local refusal = exceeded(path, units, key, 'exceeds_limit', 'limit')
    if refusal then return refusal end
  end
  for _, key in ipairs(fixed and units.keys or {}) do
    local refusal = exceeded(path, units, key, 'exceeds_reserved', 'reserved')
    if refusal then return refusal end
  end
end

-- Return the refusal of a template that has as many policies as it may have; nil if the component has a policy, or may get one.
local function template_refusal(path)
  local full = templates.refusal(path)
  return full and table.concat({'too_many_tenants', '-', full[4], full[3], 'policy:' .. path[1].fields.template}, ' ')
end

-- Return nil if any pool is eligible; else the code of the first pool, and every refusal (`pool code …`, split by `;`). `pools`: those
-- of a request that is admitted; without them, those of a waiter.
function eligibility.refusals(component, units, fixed, pools)
  local first_code, refusals = 'no_policy', {}
  for i, name in ipairs(pools or lanes.pools(component)) do
    local path = accounts.path(name, component)
    local refusal = eligibility.refusal(path, units, fixed) or template_refusal(path)
    if not refusal then return nil end
    if i == 1 then first_code = string.match(refusal, '^%S+') end
    refusals[i] = name .. ' ' .. refusal
  end
  return {'reason', first_code, 'reasons', table.concat(refusals, ';')}
end
