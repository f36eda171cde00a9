-- Change a pool: capacity is merged (0 takes a key away), settings are merged (an empty one is unset).
-- @use accounts amounts clock quotas rechecks requests unfinished_work
-- @keys pools pool_policies pool_groups
-- @args now events_kept chunk name description capacity settings
-- @reply updated more
-- @reply refused code account key wants bound
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.name)
if not pool then return reply.not_found() end
local change, settings = amounts.decode(args.capacity), cjson.decode(args.settings)

local function breaks(account, key, capacity)
  local limit, reserved = account.limit[key], account.reserved[key] or 0
  local most = math.max(limit or 0, reserved)
  local protected = capacity == 0 and amounts.decode(account.fields.non_preemptible_usage_threshold or '').of[key]
  if most > capacity or capacity == 0 and (limit or account.reserved[key] or protected) then
    return reply.refused('breaks_policy', account.id, key, amounts.format(capacity), amounts.format(math.max(most, protected or 0)))
  end
end

local left = {}
for key in pairs(pool.limit) do left[key] = true end
for _, key in ipairs(change.keys) do
  local capacity = change.of[key]
  left[key] = capacity > 0 or nil
  if pool.limit[key] and capacity < pool.limit[key] then
    if capacity == 0 and (pool.used[key] or 0) > 0 then
      return reply.refused('key_in_use', 'pool', key, '0', amounts.format(pool.used[key]))
    end
    for _, name in ipairs(redis.call('SMEMBERS', keys.pool_policies(pool.name))) do
      local no = breaks(accounts.policy(pool.name, name), key, capacity)
      if no then return no end
    end
    for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(pool.name))) do
      local no = breaks(accounts.group(pool.name, name), key, capacity)
      if no then return no end
    end
    if (pool.children_reserved[key] or 0) > capacity then
      return reply.refused('breaks_promises', 'pool', key, amounts.format(capacity), amounts.format(pool.children_reserved[key]))
    end
  end
end
local keys_left = 0
for _ in pairs(left) do keys_left = keys_left + 1 end
if keys_left == 0 then return reply.refused('no_capacity_left', 'pool', '-', '0', '1') end
if keys_left > const.MAX_KEYS then return reply.refused('too_many_keys', 'pool', '-', amounts.format(keys_left), amounts.format(const.MAX_KEYS)) end
local no = quotas.threshold_refusal(left, 'pool', settings.non_preemptible_usage_threshold or pool.fields.non_preemptible_usage_threshold)
if no then return reply.refused(unpack(no)) end

if args.description ~= '' then redis.call('HSET', keys.pools(), pool.name, string.sub(args.description, 2)) end
for _, key in ipairs(change.keys) do
  if change.of[key] > 0 then redis.call('HSET', pool.key, 'limit:' .. key, amounts.format(change.of[key]))
  else redis.call('HDEL', pool.key, 'limit:' .. key) end
end
for name, value in pairs(settings) do
  if value ~= '' then redis.call('HSET', pool.key, name, value) else redis.call('HDEL', pool.key, name) end
end
rechecks.start(pool)
return reply.updated(unfinished_work.resume(tonumber(args.chunk)))
