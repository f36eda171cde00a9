-- Read one pool at one moment, as the planner needs it: accounts, allocations, victims, holds and waiters.
-- A large pool is read in parts. Without a change number the reply is `large`: the caller notes the number, reads allocations and
-- accounts page by page, and calls again with it. Then the reply has the allocations, victims and accounts that changed since,
-- and the rest of the pool. If more changed than one call reads, the reply is `moved`; if the changes are not kept any more, it
-- is `lost`. With `force` the pool is read all the same. `lanes` are the lanes of which the waiters are not in the reply.
-- @use accounts amounts clock fair_share_order fair_share_pages parking_lookup policy_demand snapshot_changes snapshot_rows snapshot_waiters victim_holds
-- @reads pool pool_allocation_records pool_allocations pool_groups pool_lanes pool_policies pool_preemptions pool_victims
-- @args now pool most anyway max_allocations max_accounts max_lanes max_changes event number force
-- @reply found now pool counts allocations victims accounts holds waiters lanes line preferred preemptions demand next_page event number
-- @reply large event number rules
-- @reply moved
-- @reply lost
-- @reply quiet
-- @reply unfinished
-- @reply not_found

clock.start(args.now)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
if pool.fields.reviewing or pool.fields.unsettled or pool.fields.orphaning then return reply.unfinished() end
local most, max_lanes = tonumber(args.most), tonumber(args.max_lanes)
local lane_ids = fair_share_order.applies(pool) and fair_share_pages.select_lanes(pool, most) or redis.call('ZRANGE', keys.pool_lanes(args.pool), 0, most - 1)
local is_idle = #lane_ids == 0 and redis.call('HLEN', keys.pool_victims(args.pool)) == 0
if is_idle and (pool.fields.watched or '0') == '0' and args.anyway ~= '1' then return reply.quiet() end

local allocation_count = redis.call('ZCARD', keys.pool_allocations(args.pool))
local account_count = redis.call('SCARD', keys.pool_groups(args.pool)) + redis.call('SCARD', keys.pool_policies(args.pool))
local is_large = allocation_count > tonumber(args.max_allocations) or account_count > tonumber(args.max_accounts) or #lane_ids > max_lanes
if is_large and args.event == '' then
  local event, number = snapshot_changes.number(args.pool)
  return reply.large(event, number, pool.fields.rules or '0')
end

-- Return all allocations, victims and accounts of a small pool.
local function read_whole()
  local rows = snapshot_rows.new(args.pool)
  for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.pool))) do rows.add_account('group:' .. name) end
  for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do rows.add_account('policy:' .. component) end
  rows.allocations = redis.call('HGETALL', keys.pool_allocation_records(args.pool))
  rows.victims = redis.call('HGETALL', keys.pool_victims(args.pool))
  return {event = '', number = '', rows = rows}
end

local changes
if is_large then changes = snapshot_changes.read(pool, args.event, tonumber(args.number), tonumber(args.max_changes)) else changes = read_whole() end
if not changes and args.force ~= '1' then return reply.lost() end
if changes and changes.more and args.force ~= '1' then return reply.moved() end
changes = changes or {event = args.event, number = args.number, rows = snapshot_rows.new(args.pool)}

local holds = {}
for _, hold in ipairs(victim_holds.list(pool)) do
  local brought = {}
  for _, account in ipairs(hold.path) do
    for _, key in ipairs(hold.lane.units.keys) do
      local units = victim_holds.units_freed(hold, account, key)
      if units > 0 then brought[#brought + 1] = {account.id, key, amounts.format(units)} end
    end
  end
  holds[#holds + 1] = {(snapshot_waiters.row(pool, hold.lane, hold.id)), brought}
end

local first_lanes, later_lanes = {}, {}
for i, id in ipairs(lane_ids) do
  local list = i <= max_lanes and first_lanes or later_lanes
  list[#list + 1] = id
end
local waiters, preferred = snapshot_waiters.read(pool, first_lanes, #lane_ids, most)
local _, line_score = parking_lookup.line_head(pool)
local demand, next_page = {}, ''
if fair_share_order.applies(pool) or args.anyway == '1' then demand, next_page = policy_demand.read(pool, 0, max_lanes) end
return reply.found(amounts.format(clock.now), redis.call('HGETALL', keys.pool(args.pool)), {amounts.format(allocation_count), amounts.format(account_count)},
  changes.rows.allocations, changes.rows.victims, changes.rows.accounts, holds, waiters, later_lanes,
  line_score and amounts.format(line_score) or '', preferred,
  redis.call('ZCOUNT', keys.pool_preemptions(args.pool), '(' .. amounts.format(clock.now - 60000), amounts.format(clock.now)),
  demand, next_page, changes.event, changes.number)
