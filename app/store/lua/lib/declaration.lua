-- One pool of a declaration: whether it still is what it was planned against, and whether what is held or waits forbids the change.
-- @use accounts amounts deletions lanes quotas
-- @keys pools pool_queue pool_allocations pool_lanes pool_groups pool_policies pool_unfinished unfinished group policy component_lanes lane

-- What differs between groups and policies: where their names are, which field names the parent, their account and its key.
declaration.KINDS = {
  {rows = 'groups', above = 'parent', account = accounts.group,
    names = function(pool) return keys.pool_groups(pool) end, key = function(pool, name) return keys.group(pool, name) end, remove = deletions.group},
  {rows = 'policies', above = 'group', account = accounts.policy,
    names = function(pool) return keys.pool_policies(pool) end, key = function(pool, name) return keys.policy(pool, name) end, remove = deletions.policy},
}

local function same(now, text)
  local wanted = amounts.decode(text)
  for key, amount in pairs(now) do
    if wanted.of[key] ~= amount then return false end
  end
  for _, key in ipairs(wanted.keys) do
    if not now[key] then return false end
  end
  return true
end

-- Whether an account says the same for itself, and no more.
local function says(now, settings)
  for _, setting in ipairs(settings) do
    if (now.fields[setting[1]] or '') ~= setting[2] then return false end
  end
  return true
end

local function all_same(kind, pool, rows)
  if redis.call('SCARD', kind.names(pool.name)) ~= #rows then return false end
  for _, row in ipairs(rows) do
    local now = kind.account(pool.name, row.name)
    local alike = now and (now.fields[kind.above] or '') == row.above and now.fields.weight == row.weight
      and (now.fields.priority or '') == row.priority and (row.profile == '' or (now.fields.profile or 'batch') == row.profile)
      and same(now.reserved, row.reserved) and same(now.limit, row.limit) and says(now, row.settings)
    if not alike then return false end
  end
  return true
end

-- Whether the pool is as it was when the change was planned. A setting that is not written is what it is then.
function declaration.is_unchanged(change)
  local pool, before = accounts.pool(change.name), change.before
  if not pool or not before then return not pool and not before end
  for _, setting in ipairs(before.settings) do
    local name, value, unwritten = unpack(setting)
    if (pool.fields[name] or unwritten) ~= value then return false end
  end
  local description = redis.call('HGET', keys.pools(), pool.name) or ''
  if description ~= before.description or not same(pool.limit, before.capacity) then return false end
  for _, kind in ipairs(declaration.KINDS) do
    if not all_same(kind, pool, before[kind.rows]) then return false end
  end
  return true
end

-- Whether something of it is to go while its queue may still name some who left; then it is finished first.
function declaration.has_unfinished_work(change)
  local goes = change.before and (not change.after or #change.gone.policies > 0)
  if not goes or redis.call('EXISTS', keys.pool_unfinished(change.name)) == 0 then return false end
  redis.call('SADD', keys.unfinished(), change.name)
  return true
end

local function waiting(pool, component)
  local count = 0
  for _, id in ipairs(redis.call('SMEMBERS', keys.component_lanes(component))) do
    if lanes.is_attached(pool, lanes.open(id)) then count = count + redis.call('ZCARD', keys.lane(id)) end
  end
  return count
end

-- What is to go and is in use: which account, how many wait for it and how many hold of it; nil if nothing is.
function declaration.find_use(change)
  local pool = change.before and accounts.pool(change.name)
  if pool and not change.after then
    local queued, active = redis.call('ZCARD', keys.pool_queue(pool.name)), redis.call('ZCARD', keys.pool_allocations(pool.name))
    if queued + active + redis.call('EXISTS', keys.pool_lanes(pool.name)) > 0 then return {'pool', queued, active} end
  end
  for _, component in ipairs(pool and change.after and change.gone.policies or {}) do
    local queued, active = waiting(pool, component), accounts.policy(pool.name, component).used.step_run or 0
    if queued + active > 0 then return {'policy:' .. component, queued, active} end
  end
end

-- Groups and policies that are there and get another parent.
function declaration.moved_accounts(change)
  local movers = {}
  for _, kind in ipairs(declaration.KINDS) do
    for _, row in ipairs(change.after[kind.rows]) do
      local now = kind.account(change.name, row.name)
      if now and (now.fields[kind.above] or '') ~= row.above then movers[#movers + 1] = now end
    end
  end
  return movers
end

-- What units that are held forbid, as code, account, key and two numbers; nil if nothing.
function declaration.refusal(change)
  local pool = change.before and change.after and accounts.pool(change.name)
  if not pool then return nil end
  local left = amounts.decode(change.after.capacity).of
  for _, key in ipairs(amounts.decode(change.before.capacity).keys) do
    local used = pool.used[key] or 0
    if used > 0 and not left[key] then return {'key_in_use', 'pool', key, '0', amounts.format(used)} end
  end
  for _, account in ipairs(declaration.moved_accounts(change)) do
    if quotas.in_use(account) then return {'moves_in_use', account.id, '-', '0', '0'} end
  end
end
