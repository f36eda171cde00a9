-- Preempt for a waiter: it gets a hold, and its victims begin to leave. If anything is not as planned, the call changes nothing. It takes
-- the first of `victims`, as many as its work budget allows. `begun`: the number of victims that begin to leave. `exited`: the victims
-- that freed their units at once. `continues`: 1 if earlier calls took the first victims of the plan, for the same hold.
-- `rest_count`, `rest_units`: the number of planned victims that are not in `victims`, and their units by account and key.
-- @use accounts amounts clock grant_loop grants lanes preemptions projected_shortage requests victim_holds victims work_budget
-- @reads orphaned_lanes request unfinished
-- @writes pool pool_preemptions
-- @args now events_kept chunk pool waiter victims continues rest_count rest_units unused_share_accounts reserved_accounts stack_exits used_ranges rules
-- @reply applied granted more begun exited
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.pool)
if not pool then return reply.stale('pool') end
if redis.call('EXISTS', keys.unfinished(), keys.orphaned_lanes()) > 0 then return reply.stale('unfinished') end
if (pool.fields.rules or '0') ~= args.rules then return reply.stale('rules') end

local waiter = requests.load(args.waiter)
if not waiter or waiter.status ~= states.queued then return reply.stale('waiter') end
local lane = lanes.of(waiter)
local path = accounts.path(args.pool, lane.component)
if not path or not lanes.is_attached(pool, lane) then return reply.stale('waiter') end
local hold, index = victim_holds.find(pool, args.waiter)
if (waiter.victim_hold_pool or args.pool) ~= args.pool then return reply.stale('hold elsewhere') end
local continues = args.continues == '1'
if continues and not hold then return reply.stale('hold') end
if not hold and #victim_holds.list(pool) >= const.MAX_VICTIM_HOLDS then return reply.stale('many holds') end

local minute_ago = clock.now - 60000
local chosen = cjson.decode(args.victims)
if #chosen == 0 then return reply.stale('nothing') end
local max_per_minute = tonumber(pool.fields.max_preemptions_per_minute)
if max_per_minute and redis.call('ZCOUNT', keys.pool_preemptions(pool.name), '(' .. amounts.format(minute_ago), amounts.format(clock.now)) + #chosen + tonumber(args.rest_count) > max_per_minute then
  return reply.stale('budget')
end
local backoff_s = tonumber(pool.fields.backoff_s or const.BACKOFF_S[pool.fields.discipline] or 0)
local rest_ends_ms = tonumber(pool.fields.decided_ms or 0) + backoff_s * 1000
if backoff_s > 0 and not continues and pool.fields.decided_ms and rest_ends_ms > clock.now and tonumber(pool.fields.decided_ms) <= clock.now then return reply.stale('backoff') end

local seen_ids = {}
for i, victim in ipairs(chosen) do
  local id, fence, reason = unpack(victim)
  local request = requests.load(id)
  local is_unchanged = request and request.status == states.allocated and request.fence == fence and request.pool == args.pool
  if not is_unchanged or request.preemptible == '0' or seen_ids[id] then return reply.stale('victim') end
  seen_ids[id] = true
  chosen[i] = {request = request, reason = reason, path = accounts.path(args.pool, request.component), units = lanes.of(request).units}
end
for _, condition in ipairs(cjson.decode(args.stack_exits)) do
  local account = accounts.by_id(args.pool, condition[1])
  if not account or (account.stack_exits[condition[2]] or 0) > tonumber(condition[3]) then return reply.stale('share') end
end

for _, range in ipairs(cjson.decode(args.used_ranges)) do  -- the premises of a fair-share decision
  local account = accounts.by_id(args.pool, range[1])
  local used = account and account.used[range[2]] or 0
  if not account or used < tonumber(range[3]) or used > tonumber(range[4]) then return reply.stale('use') end
end

if victims.has_orphans(pool) then return reply.stale('unjudged') end

-- True if the waiter fits the unused share of an account; units of other holds count as used.
local function fits_unused_share(account)
  for _, key in ipairs(lane.units.keys) do
    local free = (account.reserved[key] or 0) - (account.used[key] or 0) - (account.victim_held[key] or 0)
    if hold and hold.account_keys[account.key] then free = free + victim_holds.units_held(hold, account, key) end
    if pool.reserving_accounts[key] and free < lane.units.of[key] then return false end
  end
  return true
end

if lane.fixed then
  for _, key in ipairs(lane.units.keys) do
    local free = accounts.room('fixed', path[1], pool, key)
    for _, other in ipairs(victim_holds.list(pool)) do
      if other ~= hold and other.lane.fixed and other.lane.component == lane.component then free = free - (other.lane.units.of[key] or 0) end
    end
    if pool.limit[key] and free < lane.units.of[key] then return reply.stale('share') end
  end
else
  for _, name in ipairs(cjson.decode(args.unused_share_accounts)) do
    if not fits_unused_share(accounts.by_id(args.pool, name)) then return reply.stale('share') end
  end
end
local rooms, reserved_rooms = projected_shortage.rooms(path, lane, index), {}
for _, name in ipairs(cjson.decode(args.reserved_accounts)) do  -- the waiter has to fit these reserved shares when all victims have left
  local account = accounts.by_id(args.pool, name)
  for _, key in ipairs(lane.units.keys) do
    if pool.reserving_accounts[key] then
      local free = (account.reserved[key] or 0) - (account.used[key] or 0) + victims.units_leaving(account, key)
      reserved_rooms[#reserved_rooms + 1] = projected_shortage.room(account, key, lane.units.of[key], free - projected_shortage.units_of_other_holds(pool, index, account, key))
    end
  end
end
local rest_units = cjson.decode(args.rest_units)
for _, list in ipairs({rooms, reserved_rooms}) do
  projected_shortage.add_units(list, rest_units)
  projected_shortage.add_victims(list, chosen)
end
if not (projected_shortage.fits(rooms) and projected_shortage.fits(reserved_rooms)) then return reply.stale('not enough') end
for i in ipairs(chosen) do
  if projected_shortage.fits(rooms, i) then return reply.stale('superfluous') end
end

if pool.fields.patience == args.waiter then grants.end_patience_hold(pool) end
hold = hold or victim_holds.open(path, lane, waiter)
local rank, victim_ranks, exited = preemptions.rank(path[1], waiter), {}, {}
for i, victim in ipairs(chosen) do
  if i > 1 and work_budget.is_used_up() then break end
  victim_ranks[i] = victim.request.id .. '@' .. preemptions.rank(victim.path[1], victim.request)
  redis.call('ZADD', keys.pool_preemptions(pool.name), amounts.format(clock.now), victim.request.id .. ':' .. victim.request.fence)
  preemptions.begin(victim.path, hold, victim.request, victim.reason, rank, victims.origin_of(waiter))
  if victim.request.status ~= states.preempting then exited[#exited + 1] = victim.request.id end
end
preemptions.forget_old(pool)
redis.call('HSET', pool.key, 'decided_ms', amounts.format(clock.now))
requests.add_event(waiter, 'clearing', {}, {by = '', pool = args.pool, rank = rank, victims = table.concat(victim_ranks, ';'), reason = chosen[1].reason})
local more = grant_loop.settle(tonumber(args.chunk))
return reply.applied(redis.call('HGET', keys.request(args.waiter), 'status') == states.queued and 0 or 1, more, #victim_ranks, exited)
