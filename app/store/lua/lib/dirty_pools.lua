-- What a change has stirred: the pools whose next pass has something to look at, and which constraints may have more room.

local raised = {}   -- pool → constraints that may have more room than at the last look
local stirred = {}  -- pool → true: the order or a hold changed

function dirty_pools.constraints(name) return raised[name] end
function dirty_pools.all() return stirred end

function dirty_pools.mark(pool) stirred[pool.name] = true end

-- From here on the pool has been looked at.
function dirty_pools.clear(name)
  raised[name], stirred[name] = nil, nil
end

function dirty_pools.mark_constraints(pool, account, units, kinds)
  local set = raised[pool.name] or {}
  raised[pool.name] = set
  dirty_pools.mark(pool)
  for _, key in ipairs(units.keys) do
    for _, kind in ipairs(kinds) do set[kind .. '|' .. account.id .. '|' .. key] = true end
  end
end

-- Somebody is parked there whom no pass has looked at.
function dirty_pools.mark_new(pool)
  local set = raised[pool.name] or {}
  raised[pool.name] = set
  set['new|pool|-'] = true
  dirty_pools.mark(pool)
end
