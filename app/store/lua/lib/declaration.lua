-- One pool of a declaration: the checks that the pool is still as planned, and that no waiter or allocation forbids the change.
-- @use accounts amounts declared_policies deletions quotas
-- @reads group policy pool_allocations pool_groups pool_lanes pool_policies pool_queue pool_queue_syncs
-- @reads pool_unfinished pools
-- @writes unfinished

-- The differences between groups and policies: the set of names, the field of the parent, the account, its Redis key, its
-- deletion.
declaration.KINDS = {
  {rows = 'groups', above = 'parent', account = accounts.group, count = function(pool) return redis.call('SCARD', keys.pool_groups(pool.name)) end,
    names = function(pool) return keys.pool_groups(pool) end, key = function(pool, name) return keys.group(pool, name) end, remove = deletions.group},
  {rows = 'policies', above = 'group', account = accounts.policy, count = declared_policies.count,
    names = function(pool) return keys.pool_policies(pool) end, key = function(pool, name) return keys.policy(pool, name) end, remove = deletions.policy},
}

local function equals(account, text)
  local amounts_wanted = amounts.decode(text)
  for key, amount in pairs(account) do
    if amounts_wanted.of[key] ~= amount then return false end
  end
  for _, key in ipairs(amounts_wanted.keys) do
    if not account[key] then return false end
  end
  return true
end

-- True if an account has exactly these settings of its own.
local function has_settings(account, settings)
  for _, setting in ipairs(settings) do
    if (account.fields[setting[1]] or '') ~= setting[2] then return false end
  end
  return true
end

local function all_accounts_equal(kind, pool, rows)
  if kind.count(pool) ~= #rows then return false end
  for _, row in ipairs(rows) do
    local account = kind.account(pool.name, row.name)
    local is_equal = account and not account.fields.template and (account.fields[kind.above] or '') == row.above and account.fields.weight == row.weight
      and (account.fields.priority or '') == row.priority and (row.profile == '' or (account.fields.profile or 'batch') == row.profile)
      and equals(account.reserved, row.reserved) and equals(account.limit, row.limit) and has_settings(account, row.settings)
    if not is_equal then return false end
  end
  return true
end

-- True if the pool is as it was when the change was planned. A setting that is not stored has its present default.
function declaration.is_unchanged(change)
  local pool, planned = accounts.pool(change.name), change.before
  if not pool or not planned then return not pool and not planned end
  for _, setting in ipairs(planned.settings) do
    local name, value, unwritten = unpack(setting)
    if (pool.fields[name] or unwritten) ~= value then return false end
  end
  local description = redis.call('HGET', keys.pools(), pool.name) or ''
  if description ~= planned.description or not equals(pool.limit, planned.capacity) then return false end
  for _, kind in ipairs(declaration.KINDS) do
    if not all_accounts_equal(kind, pool, planned[kind.rows]) then return false end
  end
  return true
end

-- True if the change deletes something while work in the pool is unfinished: its queue may still name deleted members.
function declaration.has_unfinished_work(change)
  local removes_policies = change.before and (not change.after or #change.gone.policies > 0)
  if not removes_policies or redis.call('EXISTS', keys.pool_unfinished(change.name), keys.pool_queue_syncs(change.name)) == 0 then return false end
  redis.call('SADD', keys.unfinished(), change.name)
  return true
end

-- Return the first account to be deleted that is in use, with its numbers of waiters and allocations; nil if none is.
function declaration.find_use(change)
  local pool = change.before and accounts.pool(change.name)
  if pool and not change.after then
    local queued, active = redis.call('ZCARD', keys.pool_queue(pool.name)), redis.call('ZCARD', keys.pool_allocations(pool.name))
    if queued + active + redis.call('EXISTS', keys.pool_lanes(pool.name)) > 0 then return {'pool', queued, active} end
  end
  for _, component in ipairs(pool and change.after and change.gone.policies or {}) do
    local queued, active = deletions.use_of(accounts.policy(pool.name, component))
    if queued + active > 0 then return {'policy:' .. component, queued, active} end
  end
end

-- Return the groups and policies that get another parent.
function declaration.moved_accounts(change)
  local movers = {}
  for _, kind in ipairs(declaration.KINDS) do
    for _, row in ipairs(change.after[kind.rows]) do
      local account = kind.account(change.name, row.name)
      if account and (account.fields[kind.above] or '') ~= row.above then movers[#movers + 1] = account end
    end
  end
  return movers
end

-- Return why allocated units forbid the change: code, account, key and two numbers; nil if they do not.
function declaration.refusal(change)
  local pool = change.before and change.after and accounts.pool(change.name)
  if not pool then return nil end
  local remaining = amounts.decode(change.after.capacity).of
  for _, key in ipairs(amounts.decode(change.before.capacity).keys) do
    local used = pool.used[key] or 0
    if used > 0 and not remaining[key] then return {'key_in_use', 'pool', key, '0', amounts.format(used)} end
  end
  for _, account in ipairs(declaration.moved_accounts(change)) do
    if quotas.in_use(account) then return {'moves_in_use', account.id, '-', '0', '0'} end
  end
end
