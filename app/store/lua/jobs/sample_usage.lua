-- Append a sample of the units used in a pool, in all and by policy, unless the last sample is too recent; drop the oldest. If
-- more policies use the pool than `listed`, the sample has those with the largest part, and ends in `+`.
-- @use accounts amounts clock
-- @reads policy pool_policies
-- @writes pool_usage_history
-- @args now pool apart_ms most listed
-- @reply sampled
-- @reply early
-- @reply not_found

clock.start(args.now)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local last_ms = tonumber(string.match(redis.call('LINDEX', keys.pool_usage_history(args.pool), -1) or '', '^%d+'))
if last_ms and math.abs(clock.now - last_ms) < tonumber(args.apart_ms) then return reply.early() end

local resource_keys = {}
for key in pairs(pool.limit) do resource_keys[#resource_keys + 1] = key end
table.sort(resource_keys)
local field_names = {'creation_number'}
for i, key in ipairs(resource_keys) do
  field_names[i + 1] = 'used:' .. key
  field_names[#resource_keys + i + 1] = 'reserved:' .. key
end

local function amounts_text(by_key)
  local units = {}
  for i, key in ipairs(resource_keys) do units[i] = amounts.format(by_key[key] or 0) end
  return table.concat(units, ',')
end

-- Return the row of a policy: its creation number (names are long) and its units; nil if it has none used or reserved.
local function policy_row(component)
  local values = redis.call('HMGET', keys.policy(args.pool, component), unpack(field_names))
  local used, is_active, pool_fraction = {}, false, 0
  for i, key in ipairs(resource_keys) do
    used[key] = tonumber(values[i + 1] or 0)
    is_active = is_active or used[key] > 0 or tonumber(values[#resource_keys + i + 1] or 0) > 0
    pool_fraction = pool_fraction + used[key] / pool.limit[key]
  end
  return values[1] and is_active and {pool_fraction = pool_fraction, creation_number = tonumber(values[1]), text = values[1] .. ':' .. amounts_text(used)} or nil
end

local rows = {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do rows[#rows + 1] = policy_row(component) end
table.sort(rows, function(a, b)
  if a.pool_fraction ~= b.pool_fraction then return a.pool_fraction > b.pool_fraction end
  return a.creation_number < b.creation_number
end)
local words = {amounts.format(clock.now), table.concat(resource_keys, ','), amounts_text(pool.limit), amounts_text(pool.used)}
for i = 1, math.min(#rows, tonumber(args.listed)) do words[i + 4] = rows[i].text end
if #rows > tonumber(args.listed) then words[#words + 1] = '+' end
redis.call('RPUSH', keys.pool_usage_history(args.pool), table.concat(words, ' '))
redis.call('LTRIM', keys.pool_usage_history(args.pool), '-' .. args.most, -1)
return reply.sampled()
