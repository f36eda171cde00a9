-- Whether an ask could ever be granted; present use does not matter.
-- @use accounts amounts lanes

local function beyond(path, units, key, code, column)
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

-- Nil if eligible; else `code key asked bound account` of the first rule that says no: capacity, limits, the fixed share.
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
    local no = beyond(path, units, key, 'exceeds_limit', 'limit')
    if no then return no end
  end
  for _, key in ipairs(fixed and units.keys or {}) do
    local no = beyond(path, units, key, 'exceeds_reserved', 'reserved')
    if no then return no end
  end
end

-- For what fits nowhere: the first pool's code, and every pool's refusal (`pool code …`, split by `;`). Nil if it fits somewhere.
function eligibility.refusals(component, units, fixed)
  local first, all = 'no_policy', {}
  for i, name in ipairs(lanes.pools(component)) do
    local no = eligibility.refusal(accounts.path(name, component), units, fixed)
    if not no then return nil end
    if i == 1 then first = string.match(no, '^%S+') end
    all[i] = name .. ' ' .. no
  end
  return {'reason', first, 'reasons', table.concat(all, ';')}
end
