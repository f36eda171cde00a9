-- What a policy or a group may be promised (reserved, limit), and what its parent has promised to all of its children.
-- @use accounts amounts

local PROTECTED = 'non_preemptible_usage_threshold'

-- A refusal as it is answered: code, account, key, and the two numbers that do not agree.
local function refusal(code, account, key, asked, bound)
  return {code, account, key, amounts.format(asked), amounts.format(bound)}
end

-- Nil if every key of which use is protected is listed by the pool, of which `listed` are the keys.
function quotas.threshold_refusal(listed, id, protected)
  local wanted = amounts.decode(protected or '')
  for _, key in ipairs(wanted.keys) do
    if not listed[key] then return refusal('unknown_threshold_key', id, key, wanted.of[key], 0) end
  end
end

-- Nil if `wanted` (reserved, limit) agrees with itself, the pool and what the parent has left, and its settings with the
-- pool; `now` is the account as it is.
function quotas.refusal(pool, parent, now, id, wanted, settings)
  for key, reserved in pairs(wanted.reserved) do
    if not pool.limit[key] then return refusal('unknown_key', 'pool', key, reserved, 0) end
    local limit = wanted.limit[key] or pool.limit[key]
    if reserved > limit then return refusal('reserved_beyond_limit', id, key, reserved, limit) end
  end
  for key, limit in pairs(wanted.limit) do
    if not pool.limit[key] then return refusal('unknown_key', 'pool', key, limit, 0) end
    if limit > pool.limit[key] then return refusal('limit_beyond_capacity', id, key, limit, pool.limit[key]) end
  end
  for _, setting in ipairs(settings) do
    local no = setting[1] == PROTECTED and quotas.threshold_refusal(pool.limit, id, setting[2])
    if no then return no end
  end
  for key, promised in pairs(now and now.children_reserved or {}) do
    if promised > (wanted.reserved[key] or 0) then
      return refusal('reserved_below_children', id, key, wanted.reserved[key] or 0, promised)
    end
  end
  local given = parent == pool and pool.limit or parent.reserved
  for key, reserved in pairs(wanted.reserved) do
    local own = now and quotas.parent(pool, now) == parent and now.reserved[key] or 0
    local total = (parent.children_reserved[key] or 0) - own + reserved
    if reserved > 0 and total > (given[key] or 0) then return refusal('overpromised', parent.id, key, total, given[key] or 0) end
  end
end

function quotas.parent(pool, account)
  local name = account.fields.group or account.fields.parent
  return name and accounts.group(pool.name, name) or pool
end

local function shift(account, column, key, by)
  local now = (account[column][key] or 0) + by
  account[column][key] = now > 0 and now or nil
  if now > 0 then redis.call('HSET', account.key, column .. ':' .. key, amounts.format(now))
  else redis.call('HDEL', account.key, column .. ':' .. key) end
end

-- Enter an account's reserved in its parent's and the pool's books, or strike it out (sign -1).
function quotas.update_reserved_sums(pool, parent, reserved, sign)
  for key, amount in pairs(reserved) do
    if amount > 0 then
      shift(parent, 'children_reserved', key, sign * amount)
      shift(pool, 'reserving_accounts', key, sign)
    end
  end
end

-- Settings by name and value, an empty one is unset.
function quotas.write_settings(key, settings)
  for _, setting in ipairs(settings) do
    if setting[2] ~= '' then redis.call('HSET', key, setting[1], setting[2]) else redis.call('HDEL', key, setting[1]) end
  end
end

-- An account that is new is the youngest of its pool.
function quotas.number_account(pool, key)
  redis.call('HSET', key, 'creation_number', amounts.format(redis.call('HINCRBY', pool.key, 'last_creation_number', 1)))
end

-- Replace what an account is promised, and its settings.
function quotas.write(key, now, wanted, settings)
  for _, column in ipairs({'reserved', 'limit'}) do
    for name in pairs(now and now[column] or {}) do redis.call('HDEL', key, column .. ':' .. name) end
    for name, amount in pairs(wanted[column]) do redis.call('HSET', key, column .. ':' .. name, amounts.format(amount)) end
  end
  quotas.write_settings(key, settings)
  accounts.forget(key)
end

-- Whether units are held on an account.
function quotas.in_use(account)
  for _, used in pairs(account.used) do
    if used > 0 then return true end
  end
  return false
end
