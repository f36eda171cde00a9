-- Preempt allocations of accounts over their limit: the first of `victims`, as many as the work budget allows. None is preempted if any of
-- `victims` has changed, or if its account is within its limit once the victims before it have left. `partly`: 1 if any are left over.
-- @use accounts amounts clock grant_loop lanes preemptions requests victims work_budget
-- @reads orphaned_lanes unfinished
-- @writes pool_preemptions
-- @args now events_kept chunk pool victims rules
-- @reply applied more partly
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.pool)
if not pool then return reply.stale('pool') end
if redis.call('EXISTS', keys.unfinished(), keys.orphaned_lanes()) > 0 then return reply.stale('unfinished') end
if (pool.fields.rules or '0') ~= args.rules then return reply.stale('rules') end

local minute_ago = clock.now - 60000
local chosen, leaving_units, seen_ids = cjson.decode(args.victims), {}, {}
local max_per_minute = tonumber(pool.fields.max_preemptions_per_minute)
if max_per_minute and redis.call('ZCOUNT', keys.pool_preemptions(pool.name), '(' .. amounts.format(minute_ago), amounts.format(clock.now)) + #chosen > max_per_minute then
  return reply.stale('budget')
end

local function add_leaving(path, units)
  for _, account in ipairs(path) do
    for _, key in ipairs(units.keys) do leaving_units[account.id .. '|' .. key] = (leaving_units[account.id .. '|' .. key] or 0) + units.of[key] end
  end
end

-- True if the account is over its limit on a key of these units, once the earlier victims have left.
local function is_over(account, units)
  for _, key in ipairs(units.keys) do
    if accounts.room('limit', account, pool, key) + victims.units_leaving(account, key) + (leaving_units[account.id .. '|' .. key] or 0) < 0 then return true end
  end
  return false
end

for i, victim in ipairs(chosen) do
  local id, fence, over_account = unpack(victim)
  local request = requests.load(id)
  local is_unchanged = request and request.status == states.allocated and request.fence == fence and request.pool == args.pool
  if not is_unchanged or request.preemptible == '0' or seen_ids[id] then return reply.stale('victim') end
  seen_ids[id] = true
  local path, units = accounts.path(args.pool, request.component), lanes.of(request).units
  local may_stay = true
  for _, account in ipairs(path) do may_stay = may_stay and not (account.id == over_account and is_over(account, units)) end
  if may_stay then return reply.stale('limit') end
  add_leaving(path, units)
  chosen[i] = {request = request, path = path}
end

local partly = 0
for i, victim in ipairs(chosen) do
  if i > 1 and work_budget.is_used_up() then
    partly = 1
    break
  end
  redis.call('ZADD', keys.pool_preemptions(pool.name), amounts.format(clock.now), victim.request.id .. ':' .. victim.request.fence)
  preemptions.begin(victim.path, nil, victim.request, 'limit', '')
end
preemptions.forget_old(pool)
return reply.applied(grant_loop.settle(tonumber(args.chunk)), partly)
