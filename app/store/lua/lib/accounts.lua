-- The ledger: what a pool, a group and a policy have in common, and the arithmetic of a grant along a path of them.
-- @use amounts
-- @keys pool group policy

local loaded = {}

local function load(key, id)
  local account = loaded[key]
  if account == nil then
    local raw = redis.call('HGETALL', key)
    account = #raw > 0 and {key = key, id = id, fields = {}, limit = {}, used = {}, fixed = {}, reserved = {}, promised = {},
      cleared = {}, kept = {}, back = {}, reserving = {}, fair = {}, sated = {}}
    for i = 1, #raw, 2 do
      local kind, of = string.match(raw[i], '^(%l+):(.+)$')
      if kind then account[kind][of] = tonumber(raw[i + 1]) else account.fields[raw[i]] = raw[i + 1] end
    end
    loaded[key] = account
  end
  return account
end

function accounts.pool(name)
  local pool = load(keys.pool(name), 'pool')
  if pool then pool.name = name end
  return pool
end

function accounts.group(pool, name) return load(keys.group(pool, name), 'group:' .. name) end

function accounts.policy(pool, component)
  local policy = load(keys.policy(pool, component), 'policy:' .. component)
  if policy then policy.component = component end
  return policy
end

-- The account a constraint names.
function accounts.by_id(pool, id)
  if id == 'pool' then return accounts.pool(pool) end
  local kind, name = string.match(id, '^(%l+):(.+)$')
  if kind == 'group' then return accounts.group(pool, name) end
  return accounts.policy(pool, name)
end

-- After a change of an account's own numbers the next look reads it again.
function accounts.forget(key) loaded[key] = nil end

-- Every account a grant debits: the policy, its groups, the pool. False without a policy.
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

function accounts.capacity(pool, key)
  return pool.limit[key] or const.UNBOUNDED[key] and const.EXACT or 0
end

-- The limit that counts at an account: a limit as large as the pool is none.
function accounts.limit(account, pool, key)
  local capacity = accounts.capacity(pool, key)
  if account == pool then return capacity end
  local limit = account.limit[key]
  return limit and limit < capacity and limit or nil
end

-- How much of a key a constraint leaves.
function accounts.room(kind, account, pool, key)
  if kind == 'fixed' then return (account.reserved[key] or 0) - (account.fixed[key] or 0) end
  local limit = accounts.limit(account, pool, key)
  if not limit then return const.EXACT end
  local left = limit - (account.used[key] or 0)
  if kind == 'limit' then return left end
  return left - (account.cleared[key] or 0) - (kind == 'held' and account.kept[key] or 0)
end

local worst, all  -- of what lacks: the worst, and if somebody wants to know, everything

local function weigh(kind, account, pool, key, need)
  local room = accounts.room(kind, account, pool, key)
  if need <= room then return end
  local short = (need - room) / need
  if not worst or short > worst.short then worst = {kind = kind, account = account.id, key = key, need = need, short = short} end
  if all then all[#all + 1] = {kind, account.id, key, amounts.format(need), amounts.format(room)} end
end

-- What keeps an ask from being granted along a path, nil if nothing does: limits and the fixed share go before capacity (what holds
-- with victims keep counts as used at either), and capacity before the hold of patience, which counts only for whom it binds; of
-- several the one that lacks most. An owner of a hold with victims is looked at in `hold_owners`. Into the list `told`, if there is one,
-- goes everything that lacks: kind, account, key, need, room.
function accounts.blocker(path, ask, fixed, bound, told)
  local policy, pool, first = path[1], path[#path], nil
  worst, all = nil, told
  local function decided()
    first = first or worst
    return first and not told
  end
  for _, key in ipairs(ask.keys) do
    for i = 1, #path - 1 do weigh('limit', path[i], pool, key, ask.of[key]) end
    if fixed and pool.limit[key] then weigh('fixed', policy, pool, key, ask.of[key]) end
  end
  local cleared = pool.fields.clearings and ask.keys or {}
  for _, key in ipairs(decided() and {} or cleared) do
    for i = 1, #path - 1 do weigh('cleared', path[i], pool, key, ask.of[key]) end
  end
  if decided() then return first end
  for _, key in ipairs(ask.keys) do weigh('limit', pool, pool, key, ask.of[key]) end
  for _, key in ipairs(decided() and {} or cleared) do weigh('cleared', pool, pool, key, ask.of[key]) end
  if decided() or not bound then return first end
  for _, key in ipairs(ask.keys) do
    for i = 1, #path do weigh('held', path[i], pool, key, ask.of[key]) end
  end
  return first or worst
end
