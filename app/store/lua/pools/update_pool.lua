-- Update a pool: capacity is merged (0 removes a key), settings are merged (an empty one is unset).
-- @use accounts amounts clock promises quotas rechecks requests unfinished_work
-- @reads pool_groups pool_policies
-- @writes pool pools
-- @args now events_kept chunk name description capacity settings
-- @reply updated more
-- @reply refused code account key wants bound
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.name)
if not pool then return reply.not_found() end
local change, settings = amounts.decode(args.capacity), cjson.decode(args.settings)

local function limit_refusal(account, key, capacity)
  local limit, reserved = account.limit[key], account.reserved[key] or 0
  local largest = math.max(limit or 0, reserved)
  local protected = capacity == 0 and amounts.decode(account.fields.non_preemptible_usage_threshold or '').of[key]
  if largest > capacity or capacity == 0 and (limit or account.reserved[key] or protected) then
    return reply.refused('breaks_policy', account.id, key, amounts.format(capacity), amounts.format(math.max(largest, protected or 0)))
  end
end

local remaining = {}
for key in pairs(pool.limit) do remaining[key] = true end
for _, key in ipairs(change.keys) do
  local capacity = change.of[key]
  remaining[key] = capacity > 0 or nil
  if pool.limit[key] and capacity < pool.limit[key] then
    if capacity == 0 and (pool.used[key] or 0) > 0 then
      return reply.refused('key_in_use', 'pool', key, '0', amounts.format(pool.used[key]))
    end
    for _, name in ipairs(redis.call('SMEMBERS', keys.pool_policies(pool.name))) do
      local refusal = limit_refusal(accounts.policy(pool.name, name), key, capacity)
      if refusal then return refusal end
    end
    for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(pool.name))) do
      local refusal = limit_refusal(accounts.group(pool.name, name), key, capacity)
      if refusal then return refusal end
    end
    if (pool.children_reserved[key] or 0) > capacity then
      return reply.refused('breaks_promises', 'pool', key, amounts.format(capacity), amounts.format(pool.children_reserved[key]))
    end
  end
end
local key_count = 0
for _ in pairs(remaining) do key_count = key_count + 1 end
if key_count == 0 then return reply.refused('no_capacity_left', 'pool', '-', '0', '1') end
if key_count > const.MAX_KEYS then return reply.refused('too_many_keys', 'pool', '-', amounts.format(key_count), amounts.format(const.MAX_KEYS)) end
local refusal = quotas.threshold_refusal(remaining, 'pool', settings.non_preemptible_usage_threshold or pool.fields.non_preemptible_usage_threshold)
if refusal then return reply.refused(unpack(refusal)) end

local changed_promises = promises.changed(pool, settings.template_max)
refusal = promises.refusal(pool, changed_promises, change.of)
if refusal then return reply.refused(unpack(refusal)) end

if args.description ~= '' then redis.call('HSET', keys.pools(), pool.name, string.sub(args.description, 2)) end
for _, key in ipairs(change.keys) do
  if change.of[key] > 0 then redis.call('HSET', pool.key, 'limit:' .. key, amounts.format(change.of[key]))
  else redis.call('HDEL', pool.key, 'limit:' .. key) end
end
for name, value in pairs(settings) do
  if value ~= '' then redis.call('HSET', pool.key, name, value) else redis.call('HDEL', pool.key, name) end
end
for _, promise in ipairs(changed_promises) do
  quotas.update_reserved_sums(pool, promise.parent, promise.before, -1)
  quotas.update_reserved_sums(pool, promise.parent, promise.after, 1)
  redis.call('HSET', promise.template.key, 'reserved_times', amounts.format(promise.times))
end
rechecks.start(pool)
return reply.updated(unfinished_work.resume(tonumber(args.chunk)))
