-- Append a sample of the units used in a pool, in total and by declared policy, unless the last sample is too recent; drop the oldest.
-- The sample has the use now and, if the use was higher since the last sample, the highest use. If more than `listed` policies use the
-- pool, the sample has those that use most, and ends in `+`.
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
local field_names = {'creation_number', 'template'}
for i, key in ipairs(resource_keys) do
  field_names[i + 2] = 'used:' .. key
  field_names[#resource_keys + i + 2] = 'reserved:' .. key
  field_names[2 * #resource_keys + i + 2] = 'peak.' .. key
end

local function amounts_text(by_key)
  local units = {}
  for i, key in ipairs(resource_keys) do units[i] = amounts.format(by_key[key] or 0) end
  return table.concat(units, ',')
end

-- Raise the highest use of an account since the last sample to its use now, if that is higher, and start the next sample.
local function take_peaks(key_of_account, used, peaks)
  local changes = {}
  for _, key in ipairs(resource_keys) do
    peaks[key] = math.max(used[key] or 0, peaks[key] or 0)
    if peaks[key] > (used[key] or 0) then
      changes[#changes + 1] = 'peak.' .. key
      changes[#changes + 1] = amounts.format(used[key] or 0)
    end
  end
  if #changes > 0 then redis.call('HSET', key_of_account, unpack(changes)) end
  if #removed_peaks > 0 then redis.call('HDEL', key_of_account, unpack(removed_peaks)) end
end

-- Return the highest use as text; nil if it is the use now.
local function peaks_text(used, peaks)
  for _, key in ipairs(resource_keys) do
    if peaks[key] > (used[key] or 0) then return amounts_text(peaks) end
  end
end

local rows, row_by_component = {}, {}

-- Return the row of a policy: its creation number (shorter than its name), the units that it uses, and its highest use since the last sample.
local function row_of(component, creation_number)
  local row = row_by_component[component] or {pool_fraction = 0, used = {}, peaks = {}, is_active = false}
  row_by_component[component], row.creation_number = row, creation_number or row.creation_number
  return row
end

-- Add a policy. An instance is added to the row of its template; the highest use of that row is at least the highest of an instance.
local function add_policy(component)
  local key_of_policy = keys.policy(args.pool, component)
  local values = redis.call('HMGET', key_of_policy, unpack(field_names))
  if not values[1] then return end
  local row, used, peaks = row_of(values[2] or component, not values[2] and tonumber(values[1])), {}, {}
  for i, key in ipairs(resource_keys) do
    used[key], peaks[key] = tonumber(values[i + 2] or 0), tonumber(values[2 * #resource_keys + i + 2] or 0)
    row.is_active = row.is_active or used[key] > 0 or peaks[key] > 0 or tonumber(values[#resource_keys + i + 2] or 0) > 0
  end
  take_peaks(key_of_policy, used, peaks)
  for _, key in ipairs(resource_keys) do
    row.used[key] = (row.used[key] or 0) + used[key]
    row.peaks[key] = math.max(row.peaks[key] or 0, peaks[key], row.used[key])
  end
end

for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do add_policy(component) end
for _, row in pairs(row_by_component) do
  if row.is_active and row.creation_number then
    for _, key in ipairs(resource_keys) do row.pool_fraction = row.pool_fraction + row.peaks[key] / pool.limit[key] end
    rows[#rows + 1] = row
  end
end
table.sort(rows, function(a, b)
  if a.pool_fraction ~= b.pool_fraction then return a.pool_fraction > b.pool_fraction end
  return a.creation_number < b.creation_number
end)
local words = {amounts.format(clock.now), table.concat(resource_keys, ','), amounts_text(pool.limit), amounts_text(pool.used)}
local pool_peaks = {}
for _, key in ipairs(resource_keys) do pool_peaks[key] = tonumber(pool.fields['peak.' .. key] or 0) end
take_peaks(pool.key, pool.used, pool_peaks)
local pool_peaks_text = peaks_text(pool.used, pool_peaks)
if pool_peaks_text then words[5] = 'max:' .. pool_peaks_text end
for i = 1, math.min(#rows, tonumber(args.listed)) do
  local row, number = rows[i], amounts.format(rows[i].creation_number)
  words[#words + 1] = number .. ':' .. amounts_text(row.used)
  local highest = peaks_text(row.used, row.peaks)
  if highest then words[#words + 1] = 'max' .. number .. ':' .. highest end
end
if #rows > tonumber(args.listed) then words[#words + 1] = '+' end
redis.call('RPUSH', keys.pool_usage_history(args.pool), table.concat(words, ' '))
redis.call('LTRIM', keys.pool_usage_history(args.pool), '-' .. args.most, -1)
return reply.sampled()
