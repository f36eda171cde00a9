-- Pools that this call changed, and the constraints of each that may have more room now.

local constraints_by_pool = {}   -- pool → constraints that may have more room than at the last pass
local marked = {}  -- pool → true: the order or a hold changed

function dirty_pools.constraints(name) return constraints_by_pool[name] end
function dirty_pools.all() return marked end

function dirty_pools.mark(pool) marked[pool.name] = true end

-- Clear the marks of a pool before its pass.
function dirty_pools.clear(name)
  constraints_by_pool[name], marked[name] = nil, nil
end

function dirty_pools.mark_constraints(pool, account, units, kinds)
  local set = constraints_by_pool[pool.name] or {}
  constraints_by_pool[pool.name] = set
  dirty_pools.mark(pool)
  for _, key in ipairs(units.keys) do
    for _, kind in ipairs(kinds) do set[kind .. '|' .. account.id .. '|' .. key] = true end
  end
end

-- Mark that the pool has a parked lane that the grant loop has not judged yet.
function dirty_pools.mark_new(pool)
  local set = constraints_by_pool[pool.name] or {}
  constraints_by_pool[pool.name] = set
  set['new|pool|-'] = true
  dirty_pools.mark(pool)
end
