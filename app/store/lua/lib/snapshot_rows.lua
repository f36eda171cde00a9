-- Rows of a snapshot: allocations with the fields that the planner reads, victims with the owner of their hold, accounts.
-- @use accounts
-- @reads group policy pool_allocation_records pool_victims

-- Return empty lists of rows of a pool, and functions that add to them; each row is added once.
function snapshot_rows.new(pool_name)
  local rows, added = {allocations = {}, victims = {}, accounts = {}}, {}

  -- Add an allocation; if the request has ended, with an empty record.
  function rows.add_allocation(id)
    if added[id] then return end
    added[id] = true
    local allocations, victims = rows.allocations, rows.victims
    allocations[#allocations + 1] = id
    allocations[#allocations + 1] = redis.call('HGET', keys.pool_allocation_records(pool_name), id) or ''
    local owner = redis.call('HGET', keys.pool_victims(pool_name), id)
    if owner then
      victims[#victims + 1] = id
      victims[#victims + 1] = owner
    end
  end

  -- Add a group or a policy; one that was deleted has no fields.
  function rows.add_account(id)
    if added[id] then return end
    added[id] = true
    local kind, name = string.match(id, '^(%l+):(.+)$')
    local key = kind == 'group' and keys.group(pool_name, name) or keys.policy(pool_name, name)
    rows.accounts[#rows.accounts + 1] = {id, redis.call('HGETALL', key)}
  end

  -- Add the accounts on the path of a component, without the pool.
  function rows.add_path(component)
    local path = accounts.path(pool_name, component) or {}
    for i = 1, #path - 1 do rows.add_account(path[i].id) end
  end
  return rows
end
