-- Whether a request could ever be granted; present use does not matter.
-- @use accounts amounts lanes

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

-- Return nil if any pool is eligible; else the code of the first pool, and every refusal (`pool code …`, split by `;`).
function eligibility.refusals(component, units, fixed)
  local first_code, refusals = 'no_policy', {}
  for i, name in ipairs(lanes.pools(component)) do
    local refusal = eligibility.refusal(accounts.path(name, component), units, fixed)
    if not refusal then return nil end
    if i == 1 then first_code = string.match(refusal, '^%S+') end
    refusals[i] = name .. ' ' .. refusal
  end
  return {'reason', first_code, 'reasons', table.concat(refusals, ';')}
end
