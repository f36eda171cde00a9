-- Read the metrics of a pool and of some of its policies: numbers by name, amounts by column and key, with fair share also the
-- starvation status of each policy. A number that does not apply is empty. The policies are those of `components`, or the next page if
-- that is empty. If the work budget is used up, the reply has the components that are left.
-- @use accounts amounts clock fair_share_order work_budget
-- @reads component_lanes lane policy pool pool_allocations pool_parked pool_policies pool_policy_queue pool_queue pool_victims request
-- @args now pool cursor components count
-- @reply measured now keys columns amounts numbers policy_columns policies cursor components
-- @reply not_found

clock.start(args.now)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local resource_keys = {}
for key in pairs(pool.limit) do resource_keys[#resource_keys + 1] = key end
table.sort(resource_keys)

local COLUMNS = {'limit', 'used', 'children_reserved', 'patience_held', 'victim_held'}
local POLICY_COLUMNS = {'used', 'reserved', 'limit'}

-- Return the fields of columns: all keys of the first, then all of the next.
local function column_fields(columns)
  local names = {}
  for _, column in ipairs(columns) do
    for _, key in ipairs(resource_keys) do names[#names + 1] = column .. ':' .. key end
  end
  return names
end

local SHAPES = 32  -- most lanes of a policy that are compared, without fair share

-- Return the least submission number in a sorted set by lane score, and its id. The first member of each class is its oldest.
local function find_oldest(key, oldest)
  local from = '-inf'
  while true do
    local members = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #members == 0 then return end
    local lane_score = tonumber(members[2])
    local number = lane_score % const.MAX_SUBMISSIONS
    if not oldest.number or number < oldest.number then oldest.number, oldest.id = number, members[1] end
    from = amounts.format(lane_score - number + const.MAX_SUBMISSIONS)
  end
end

-- Return when the oldest waiter of a policy was submitted; empty if there is none.
local function oldest_ms(component)
  local oldest = {}
  if fair_share_order.applies(pool) then find_oldest(keys.pool_policy_queue(args.pool, component), oldest)
  else
    for _, lane in ipairs(redis.call('ZRANGE', keys.component_lanes(component), 0, SHAPES - 1)) do
      if redis.call('HEXISTS', keys.pool_parked(args.pool), lane) == 1 then find_oldest(keys.lane(lane), oldest) end
    end
  end
  return oldest.id and redis.call('HGET', keys.request(oldest.id), 'submitted_ms') or ''
end

local policy_fields, policies = column_fields(POLICY_COLUMNS), {}

local function measure(component)
  local queued, template, times = unpack(redis.call('HMGET', keys.policy(args.pool, component), 'queue_length', 'template', 'reserved_times'))
  local since_ms = oldest_ms(component)
  local score, status = '', ''
  if fair_share_order.applies(pool) then
    local policy = accounts.policy(args.pool, component)
    local _, current_score = fair_share_order.scores(pool, policy)
    score, status = current_score, policy.fields.status or ''
  end
  local numbers = {'queued', queued or '0', 'oldest_ms', since_ms, 'score', score}
  local amounts_row = redis.call('HMGET', keys.policy(args.pool, component), unpack(policy_fields))
  policies[#policies + 1] = {component, status, numbers, amounts_row, template or '', times or ''}
end

local components, rest, cursor = cjson.decode(args.components), {}, args.cursor
if #components == 0 then
  local page = redis.call('SSCAN', keys.pool_policies(args.pool), cursor, 'COUNT', args.count)
  cursor, components = page[1], page[2]
end
for i, component in ipairs(components) do
  if i > 1 and work_budget.is_used_up() then rest[#rest + 1] = component
  elseif redis.call('SISMEMBER', keys.pool_policies(args.pool), component) == 1 then measure(component) end
end
local numbers = {
  'queued', redis.call('ZCARD', keys.pool_queue(args.pool)),
  'active', redis.call('ZCARD', keys.pool_allocations(args.pool)),
  'preempting', redis.call('HLEN', keys.pool_victims(args.pool)),
}
return reply.measured(amounts.format(clock.now), resource_keys, COLUMNS,
  redis.call('HMGET', keys.pool(args.pool), unpack(column_fields(COLUMNS))), numbers, POLICY_COLUMNS, policies, cursor, rest)
