-- Read one pool at one moment, as the planner needs it: accounts, allocations, victims, holds and waiters.
-- @use accounts amounts clock fair_share_order fair_share_pages lanes parking parking_lookup policy_demand queue_order victim_holds
-- @reads group lane policy pool pool_allocation_records pool_groups pool_lanes pool_policies pool_preemptions
-- @reads pool_victims request
-- @args now pool most anyway
-- @reply found now pool groups policies allocations victims holds waiters line preferred preemptions demand next_page
-- @reply quiet
-- @reply unfinished
-- @reply not_found

local OF_A_CLASS = 8  -- waiters per lane and class, at most; equal ones fare alike

clock.start(args.now)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
if pool.fields.reviewing or pool.fields.unsettled then return reply.unfinished() end
local victims = redis.call('HGETALL', keys.pool_victims(args.pool))
local most = tonumber(args.most)
local lane_ids = fair_share_order.applies(pool) and fair_share_pages.select_lanes(pool, most) or redis.call('ZRANGE', keys.pool_lanes(args.pool), 0, most - 1)
if #lane_ids == 0 and #victims == 0 and (pool.fields.watched or '0') == '0' and args.anyway ~= '1' then return reply.quiet() end

local function waiter(lane, id)
  local fields = redis.call('HMGET', keys.request(id), 'class', 'seq', 'preemption_group', 'preempted_fence', 'victim_hold_pool')
  if not fields[1] then return nil end
  local lane_score = queue_order.lane_score(tonumber(fields[1]), tonumber(fields[2]))
  local path = accounts.path(args.pool, lane.component)
  return {id, lane.id, fields[1], fields[2], fields[3] or '', fields[4] or '',
    amounts.format(queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane)))}, fields[5]
end

-- Add the first waiters of each class of a lane, without owners of holds; fewer where there are many lanes.
local per_class = math.max(1, math.min(OF_A_CLASS, math.floor(most / math.max(1, #lane_ids))))

local function add_waiters(lane, into)
  local from, class, class_count = '-inf', nil, 0
  while #into < most do
    local ids = redis.call('ZRANGEBYSCORE', keys.lane(lane.id), from, '+inf', 'WITHSCORES', 'LIMIT', 0, OF_A_CLASS)
    if #ids == 0 then return end
    for i = 1, #ids, 2 do
      local lane_class = math.floor(tonumber(ids[i + 1]) / const.MAX_SUBMISSIONS)
      if lane_class ~= class then class, class_count = lane_class, 0 end
      local row, hold_pool = nil, nil
      if class_count < per_class and #into < most then row, hold_pool = waiter(lane, ids[i]) end
      if row and (hold_pool or '') == '' then
        into[#into + 1] = row
        class_count = class_count + 1
      end
    end
    from = class_count < per_class and '(' .. ids[#ids] or amounts.format((class + 1) * const.MAX_SUBMISSIONS)
  end
end

local waiters, components, preferred = {}, {}, {}
for _, id in ipairs(lane_ids) do
  local lane = lanes.open(id)
  local constraint = parking.find(pool, id)
  if #waiters < most and constraint and not string.match(constraint, '^fixed|') then
    add_waiters(lane, waiters)
    components[lane.component] = true
  end
end
for component in pairs(components) do
  local row = {component}
  for _, name in ipairs(lanes.pools(component)) do
    if name == args.pool then break end
    row[#row + 1] = name
  end
  preferred[#preferred + 1] = row
end

local holds = {}
for _, hold in ipairs(victim_holds.list(pool)) do
  local brought = {}
  for _, account in ipairs(hold.path) do
    for _, key in ipairs(hold.lane.units.keys) do
      local units = victim_holds.units_freed(hold, account, key)
      if units > 0 then brought[#brought + 1] = {account.id, key, amounts.format(units)} end
    end
  end
  holds[#holds + 1] = {(waiter(hold.lane, hold.id)), brought}
end

local groups, policies = {}, {}
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.pool))) do
  groups[#groups + 1] = {name, redis.call('HGETALL', keys.group(args.pool, name))}
end
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  policies[#policies + 1] = {component, redis.call('HGETALL', keys.policy(args.pool, component))}
end
local _, line_score = parking_lookup.line_head(pool)
local demand, next_page = {}, ''
if fair_share_order.applies(pool) or args.anyway == '1' then demand, next_page = policy_demand.read(pool, 0, most) end
return reply.found(amounts.format(clock.now), redis.call('HGETALL', keys.pool(args.pool)), groups, policies,
  redis.call('HGETALL', keys.pool_allocation_records(args.pool)), victims, holds, waiters,
  line_score and amounts.format(line_score) or '', preferred,
  redis.call('ZCOUNT', keys.pool_preemptions(args.pool), '(' .. amounts.format(clock.now - 60000), amounts.format(clock.now)), demand, next_page)
