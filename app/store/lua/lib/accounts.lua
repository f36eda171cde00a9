-- Accounts of a pool, a group and a policy, read once per call, and the arithmetic of a grant along a path of them.
-- @use amounts
-- @reads group policy pool

local cache, find, sub = {}, string.find, string.sub

local function load(key, id, planned)
  local account = cache[key]
  if account == nil or planned then
    local raw = planned or redis.call('HGETALL', key)
    account = #raw > 0 and {key = key, id = id, fields = {}, limit = {}, used = {}, fixed = {}, reserved = {}, children_reserved = {},
      victim_held = {}, patience_held = {}, leaving = {}, stack_exits = {}, reserving_accounts = {}, fair_share = {}, demand_met = {}}
    for i = 1, #raw, 2 do
      local field, colon = raw[i], find(raw[i], ':', 1, true)  -- faster than a pattern
      if colon then account[sub(field, 1, colon - 1)][sub(field, colon + 1)] = tonumber(raw[i + 1]) else account.fields[field] = raw[i + 1] end
    end
    cache[key] = account
  end
  return account
end

function accounts.pool(name)
  local pool = load(keys.pool(name), 'pool')
  if pool then pool.name = name end
  return pool
end

function accounts.group(pool, name) return load(keys.group(pool, name), 'group:' .. name) end

-- Return a policy. `planned`: the fields, name and value in turn, of a policy that is not written yet.
function accounts.policy(pool, component, planned)
  local policy = load(keys.policy(pool, component), 'policy:' .. component, planned)
  if policy then policy.component, policy.is_planned = component, policy.is_planned or planned ~= nil end
  return policy
end

-- Return the account of an id: `pool`, `group:<name>` or `policy:<component>`.
function accounts.by_id(pool, id)
  if id == 'pool' then return accounts.pool(pool) end
  local kind, name = string.match(id, '^(%l+):(.+)$')
  if kind == 'group' then return accounts.group(pool, name) end
  return accounts.policy(pool, name)
end

-- Drop the cached account: the next access reads it again.
function accounts.forget(key) cache[key] = nil end

-- Return every account a grant debits: the policy, its groups, the pool. False without a policy.
function accounts.path(pool, component)
  local policy = accounts.policy(pool, component)
  if not policy then return false end
  local path, parent = {policy}, policy.fields.group
  while parent do
    local group = accounts.group(pool, parent)
    path[#path + 1] = group
    parent = group.fields.parent
  end
  path[#path + 1] = accounts.pool(pool)
  return path
end

function accounts.capacity(pool, key) return pool.limit[key] or const.UNBOUNDED[key] and const.MAX_AMOUNT or 0 end

-- Return the limit that counts at an account; nil if there is none, or if it is as large as the pool.
function accounts.limit(account, pool, key)
  local capacity = accounts.capacity(pool, key)
  if account == pool then return capacity end
  local limit = account.limit[key]
  return limit and limit < capacity and limit or nil
end

-- Return how many units of a key a constraint leaves free.
function accounts.room(kind, account, pool, key)
  if kind == 'fixed' then return (account.reserved[key] or 0) - (account.fixed[key] or 0) end
  local limit = accounts.limit(account, pool, key)
  if not limit then return const.MAX_AMOUNT end
  local free = limit - (account.used[key] or 0)
  if kind == 'limit' then return free end
  return free - (account.victim_held[key] or 0) - (kind == 'patience_held' and account.patience_held[key] or 0)
end

local worst, shortfall_rows  -- the constraint with the largest shortfall relative to its need; all shortfalls, if the caller passes a list

local function check(kind, account, pool, key, need)
  local free = accounts.room(kind, account, pool, key)
  if need <= free then return end
  local short = (need - free) / need
  if not worst or short > worst.short then worst = {kind = kind, account = account.id, key = key, need = need, short = short} end
  if shortfall_rows then shortfall_rows[#shortfall_rows + 1] = {kind, account.id, key, amounts.format(need), amounts.format(free)} end
end

-- Return the constraint that blocks a grant along a path; nil if none does. The constraints are checked in five steps. The
-- first step with a shortfall decides, and in it the largest shortfall: 1. limits and the fixed share 2. limits, with the units
-- of victim holds as used 3. capacity 4. capacity less the units of victim holds 5. the patience hold, if it applies (`bound`).
-- `hold_owners` judges an owner of a victim hold. All shortfalls are added to the list `shortfalls`, if there is one: kind,
-- account, key, need, room.
function accounts.blocker(path, units, fixed, bound, shortfalls)
  local policy, pool, first_blocker = path[1], path[#path], nil
  worst, shortfall_rows = nil, shortfalls
  local function is_decided()
    first_blocker = first_blocker or worst
    return first_blocker and not shortfalls
  end
  for _, key in ipairs(units.keys) do
    for i = 1, #path - 1 do check('limit', path[i], pool, key, units.of[key]) end
    if fixed and pool.limit[key] then check('fixed', policy, pool, key, units.of[key]) end
  end
  local cleared = pool.fields.victim_holds and units.keys or {}
  for _, key in ipairs(is_decided() and {} or cleared) do
    for i = 1, #path - 1 do check('victim_held', path[i], pool, key, units.of[key]) end
  end
  if is_decided() then return first_blocker end
  for _, key in ipairs(units.keys) do check('limit', pool, pool, key, units.of[key]) end
  for _, key in ipairs(is_decided() and {} or cleared) do check('victim_held', pool, pool, key, units.of[key]) end
  if is_decided() or not bound then return first_blocker end
  for _, key in ipairs(units.keys) do
    for i = 1, #path do check('patience_held', path[i], pool, key, units.of[key]) end
  end
  return first_blocker or worst
end
