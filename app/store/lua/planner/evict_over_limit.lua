-- Preempt what is over a limit, for nobody: all of these, or nobody if one of them runs no more as it did, or its account would
-- not be over its limit any more once those before it have left.
-- @use accounts amounts clock grant_loop lanes preemptions requests
-- @keys orphaned_lanes pool_victims pool_preemptions unfinished
-- @args now events_kept chunk pool victims rules
-- @reply applied more
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.pool)
if not pool then return reply.stale('pool') end
if redis.call('EXISTS', keys.unfinished(), keys.orphaned_lanes()) > 0 then return reply.stale('unfinished') end
if (pool.fields.rules or '0') ~= args.rules then return reply.stale('rules') end

local minute = clock.now - 60000
local victims, going, met = cjson.decode(args.victims), {}, {}
local most = tonumber(pool.fields.max_preemptions_per_minute)
if most and redis.call('ZCOUNT', keys.pool_preemptions(pool.name), '(' .. amounts.format(minute), amounts.format(clock.now)) + #victims > most then
  return reply.stale('budget')
end

local function count(path, units)
  for _, account in ipairs(path) do
    for _, key in ipairs(units.keys) do going[account.id .. '|' .. key] = (going[account.id .. '|' .. key] or 0) + units.of[key] end
  end
end

local leaving = redis.call('HKEYS', keys.pool_victims(pool.name))
for _, id in ipairs(leaving) do
  local component, units = requests.component_and_units(id)
  if component then count(accounts.path(pool.name, component), units) end
end

-- Whether it holds something of which its account has more than it may, those who go before it left out.
local function is_over(account, units)
  for _, key in ipairs(units.keys) do
    if accounts.room('limit', account, pool, key) + (going[account.id .. '|' .. key] or 0) < 0 then return true end
  end
  return false
end

for i, victim in ipairs(victims) do
  local id, fence, over = unpack(victim)
  local request = requests.load(id)
  local runs = request and request.status == states.allocated and request.fence == fence and request.pool == args.pool
  if not runs or request.preemptible == '0' or met[id] then return reply.stale('victim') end
  met[id] = true
  local path, units = accounts.path(args.pool, request.component), lanes.of(request).units
  local may_stay = true
  for _, account in ipairs(path) do may_stay = may_stay and not (account.id == over and is_over(account, units)) end
  if may_stay then return reply.stale('limit') end
  count(path, units)
  victims[i] = {request = request, path = path}
end

for _, victim in ipairs(victims) do
  redis.call('ZADD', keys.pool_preemptions(pool.name), amounts.format(clock.now), victim.request.id .. ':' .. victim.request.fence)
  preemptions.begin(victim.path, nil, victim.request, 'limit', '')
end
redis.call('ZREMRANGEBYSCORE', keys.pool_preemptions(pool.name), '-inf', amounts.format(minute))
return reply.applied(grant_loop.settle(tonumber(args.chunk)))
