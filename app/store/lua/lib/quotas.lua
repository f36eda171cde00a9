-- Quotas of a policy or a group: its reserved amounts and limits, and the sum its parent has reserved for all children.
-- @use accounts amounts promises
-- @writes group policy pool

local PROTECTED = 'non_preemptible_usage_threshold'

-- Return a refusal as a reply: code, account, key, and the two numbers that contradict each other.
local function refusal(code, account, key, wanted_amount, bound)
  return {code, account, key, amounts.format(math.min(wanted_amount, 2 ^ 62)), amounts.format(bound)}
end

-- Return a refusal if a protected key is not a key of the pool; else nil.
function quotas.threshold_refusal(pool_keys, id, protected)
  local wanted = amounts.decode(protected or '')
  for _, key in ipairs(wanted.keys) do
    if not pool_keys[key] then return refusal('unknown_threshold_key', id, key, wanted.of[key], 0) end
  end
end

-- Return a refusal if `wanted` (reserved, limit) contradicts itself, the pool's capacity or keys, or the unreserved rest of the
-- parent's share; else nil. `account` is the account before the change.
function quotas.refusal(pool, parent, account, id, wanted, settings)
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
    local key_refusal = setting[1] == PROTECTED and quotas.threshold_refusal(pool.limit, id, setting[2])
    if key_refusal then return key_refusal end
  end
  for key, promised in pairs(account and account.children_reserved or {}) do
    if promised > (wanted.reserved[key] or 0) then
      return refusal('reserved_below_children', id, key, wanted.reserved[key] or 0, promised)
    end
  end
  local available, own = parent == pool and pool.limit or parent.reserved, account and quotas.parent(pool, account) == parent and promises.of(account) or {}
  for key, reserved in pairs(promises.wanted(wanted)) do
    local total = (parent.children_reserved[key] or 0) - (own[key] or 0) + reserved
    if reserved > 0 and total > (available[key] or 0) then return refusal('overpromised', parent.id, key, total, available[key] or 0) end
  end
end

function quotas.parent(pool, account)
  local name = account.fields.group or account.fields.parent
  return name and accounts.group(pool.name, name) or pool
end

local function add_to_column(account, column, key, by)
  local total = (account[column][key] or 0) + by
  account[column][key] = total > 0 and total or nil
  if total > 0 then redis.call('HSET', account.key, column .. ':' .. key, amounts.format(total))
  else redis.call('HDEL', account.key, column .. ':' .. key) end
end

-- Add the reserved amounts of an account to the sums of its parent and the pool, or subtract them (sign -1).
function quotas.update_reserved_sums(pool, parent, reserved, sign)
  for key, amount in pairs(reserved) do
    if amount > 0 then
      add_to_column(parent, 'children_reserved', key, sign * amount)
      add_to_column(pool, 'reserving_accounts', key, sign)
    end
  end
end

-- Write settings by name and value; an empty value unsets.
function quotas.write_settings(key, settings)
  for _, setting in ipairs(settings) do
    if setting[2] ~= '' then redis.call('HSET', key, setting[1], setting[2]) else redis.call('HDEL', key, setting[1]) end
  end
end

-- Give a new account the next creation number of its pool.
function quotas.number_account(pool, key)
  redis.call('HSET', key, 'creation_number', amounts.format(redis.call('HINCRBY', pool.key, 'last_creation_number', 1)))
end

-- Replace the quotas and the settings of an account.
function quotas.write(key, account, wanted, settings)
  for _, column in ipairs({'reserved', 'limit'}) do
    for name in pairs(account and account[column] or {}) do redis.call('HDEL', key, column .. ':' .. name) end
    for name, amount in pairs(wanted[column]) do redis.call('HSET', key, column .. ':' .. name, amounts.format(amount)) end
  end
  quotas.write_settings(key, settings)
  accounts.forget(key)
end

-- True if units of an account are allocated.
function quotas.in_use(account)
  for _, used in pairs(account.used) do
    if used > 0 then return true end
  end
  return false
end
