-- Eligibility: a request is eligible in a pool if the pool could grant it at some time; present use does not matter.
-- The codes of the refusals are those of `app/domain/reasons.py`.
-- @use accounts amounts key_pools lanes templates
-- @reads pools

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

-- Return nil if eligible; else `code key needed bound account` of the first rule that refuses: the pools that the request names, capacity,
-- limits, the fixed share.
function eligibility.refusal(path, lane)
  local pool, units = path[#path], lane.units
  if not lanes.allows(lane, pool.name) then return 'not_named - 0 0 pool' end
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
  for _, key in ipairs(lane.fixed and units.keys or {}) do
    local refusal = exceeded(path, units, key, 'exceeds_reserved', 'reserved')
    if refusal then return refusal end
  end
end

-- Return the refusal of a template with the most instances that it may have; nil if the component has a policy, or may get one.
local function template_refusal(path)
  local full = path[1].is_planned and templates.refusal(path)
  return full and table.concat({'too_many_tenants', '-', full[4], full[3], 'policy:' .. path[1].fields.template}, ' ')
end

-- Return the refusals of the pools that a lane names and in which its component has no policy.
local function refusals_without_policy(lane, pools)
  local refusals, has_policy = {}, {}
  for _, name in ipairs(pools) do has_policy[name] = true end
  for _, name in ipairs(lane.named_pools and lane.named_pools.list or {}) do
    if not has_policy[name] then
      refusals[#refusals + 1] = name .. (redis.call('HEXISTS', keys.pools(), name) == 1 and ' no_policy' or ' unknown_pool') .. ' - 0 0 pool'
    end
  end
  return refusals
end

-- Return nil if any pool is eligible; else changes of the request: the code of the first pool, every refusal (`pool code …`, split by
-- `;`), and the pools that have the keys. `pools`: those of a request that is admitted; without them, those of a waiter.
function eligibility.refusals(lane, pools)
  local refusals, is_lacking = {}, true
  pools = pools or lanes.pools(lane)
  for i, name in ipairs(pools) do
    local path = accounts.path(name, lane.component)
    local refusal = eligibility.refusal(path, lane) or template_refusal(path)
    if not refusal then return nil end
    refusals[i] = name .. ' ' .. refusal
    is_lacking = is_lacking and string.find(refusal, '^missing_key ') ~= nil
  end
  for _, refusal in ipairs(refusals_without_policy(lane, pools)) do refusals[#refusals + 1] = refusal end
  local code = refusals[1] and string.match(refusals[1], '^%S+ (%S+)') or 'no_policy'
  local changes = {'reason', code, 'reasons', table.concat(refusals, ';')}
  if not is_lacking then return changes end
  changes[5], changes[6] = 'key_pools', key_pools.list(lane)
  return changes
end
