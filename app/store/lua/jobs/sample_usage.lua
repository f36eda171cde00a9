-- Append a sample of the units used in a pool, in all and by policy, unless the last sample is too recent; drop the oldest. The
-- sample has the use now, and the highest since the last sample where that was higher. If more policies use the pool than
-- `listed`, the sample has those with the largest part, and ends in `+`.
-- @use accounts amounts clock
-- @reads pool_policies
-- @writes policy pool pool_usage_history
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
local removed_peaks = {}  -- of keys that the pool does not have any more
for name in pairs(pool.fields) do
  local key = string.match(name, '^peak%.(.+)$')
  if key and not pool.limit[key] then removed_peaks[#removed_peaks + 1] = name end
end
local field_names = {'creation_number'}
for i, key in ipairs(resource_keys) do
  field_names[i + 1] = 'used:' .. key
  field_names[#resource_keys + i + 1] = 'reserved:' .. key
  field_names[2 * #resource_keys + i + 1] = 'peak.' .. key
end

local function amounts_text(by_key)
  local units = {}
  for i, key in ipairs(resource_keys) do units[i] = amounts.format(by_key[key] or 0) end
  return table.concat(units, ',')
end

-- Return the highest use of an account since the last sample as words, nil if that is its use now, and start the next one.
local function take_peaks(key_of_account, used, peaks)
  local changes, rose = {}, false
  for _, key in ipairs(resource_keys) do
    peaks[key] = math.max(used[key] or 0, peaks[key] or 0)
    rose = rose or peaks[key] > (used[key] or 0)
    if peaks[key] > (used[key] or 0) then
      changes[#changes + 1] = 'peak.' .. key
      changes[#changes + 1] = amounts.format(used[key] or 0)
    end
  end
  if #changes > 0 then redis.call('HSET', key_of_account, unpack(changes)) end
  if #removed_peaks > 0 then redis.call('HDEL', key_of_account, unpack(removed_peaks)) end
  return rose and amounts_text(peaks) or nil
end

-- Return the row of a policy: its creation number (names are long) and its units; nil if it had none used or reserved.
local function policy_row(component)
  local key_of_policy = keys.policy(args.pool, component)
  local values = redis.call('HMGET', key_of_policy, unpack(field_names))
  if not values[1] then return nil end
  local used, peaks, is_active, pool_fraction = {}, {}, false, 0
  for i, key in ipairs(resource_keys) do
    used[key], peaks[key] = tonumber(values[i + 1] or 0), tonumber(values[2 * #resource_keys + i + 1] or 0)
    is_active = is_active or used[key] > 0 or tonumber(values[#resource_keys + i + 1] or 0) > 0
    pool_fraction = pool_fraction + math.max(used[key], peaks[key]) / pool.limit[key]
  end
  local peaks_text = take_peaks(key_of_policy, used, peaks)
  if not is_active and not peaks_text then return nil end
  local text = values[1] .. ':' .. amounts_text(used) .. (peaks_text and ' max' .. values[1] .. ':' .. peaks_text or '')
  return {pool_fraction = pool_fraction, creation_number = tonumber(values[1]), text = text}
end

local rows = {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do rows[#rows + 1] = policy_row(component) end
table.sort(rows, function(a, b)
  if a.pool_fraction ~= b.pool_fraction then return a.pool_fraction > b.pool_fraction end
  return a.creation_number < b.creation_number
end)
local words = {amounts.format(clock.now), table.concat(resource_keys, ','), amounts_text(pool.limit), amounts_text(pool.used)}
local pool_peaks = {}
for _, key in ipairs(resource_keys) do pool_peaks[key] = tonumber(pool.fields['peak.' .. key] or 0) end
local peaks_text = take_peaks(pool.key, pool.used, pool_peaks)
if peaks_text then words[5] = 'max:' .. peaks_text end
for i = 1, math.min(#rows, tonumber(args.listed)) do words[#words + 1] = rows[i].text end
if #rows > tonumber(args.listed) then words[#words + 1] = '+' end
redis.call('RPUSH', keys.pool_usage_history(args.pool), table.concat(words, ' '))
redis.call('LTRIM', keys.pool_usage_history(args.pool), '-' .. args.most, -1)
return reply.sampled()
