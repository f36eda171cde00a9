-- What the metrics tell of a pool: of itself and of each of its policies how many wait, since when the oldest was submitted, and the
-- amounts of each key. With fair share also how satisfied a policy is, and whether it starves.
-- @use accounts amounts clock fair_share_order
-- @keys component_lanes lane policy pool pool_allocations pool_victims pool_parked pool_policies pool_queue request
-- @args now pool
-- @reply measured now keys pool queued active leaving policies
-- @reply not_found

clock.start(args.now)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local listed = {}
for key in pairs(pool.limit) do listed[#listed + 1] = key end
table.sort(listed)

-- Columns of an account, as they are written: all keys of the first, then all of the next.
local function fields(columns)
  local names = {}
  for _, column in ipairs(columns) do
    for _, key in ipairs(listed) do names[#names + 1] = column .. ':' .. key end
  end
  return names
end

-- The first submitted of a lane, number and id: of each class the first is the oldest.
local function oldest(lane, count, found)
  local from, left = '-inf', count
  while left > 0 do
    local first = redis.call('ZRANGEBYSCORE', keys.lane(lane), from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #first == 0 then return end
    left = left - 1
    local inner = tonumber(first[2])
    local number = inner % const.AGES
    if not found.number or number < found.number then found.number, found.id = number, first[1] end
    from = amounts.format(inner - number + const.AGES)
  end
end

local function waiting(component)
  local queued, found = 0, {}
  for _, lane in ipairs(redis.call('SMEMBERS', keys.component_lanes(component))) do
    if redis.call('HEXISTS', keys.pool_parked(args.pool), lane) == 1 then
      local count = redis.call('ZCARD', keys.lane(lane))
      queued = queued + count
      oldest(lane, count, found)
    end
  end
  return amounts.format(queued), found.id and redis.call('HGET', keys.request(found.id), 'submitted_ms') or ''
end

local of_policy, policies = fields({'used', 'reserved', 'limit'}), {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  local queued, since_ms = waiting(component)
  local score, status = '', ''
  if fair_share_order.applies(pool) then
    local policy = accounts.policy(args.pool, component)
    local _, now = fair_share_order.scores(pool, policy)
    score, status = now, policy.fields.status or ''
  end
  policies[#policies + 1] = {component, queued, since_ms, score, status, redis.call('HMGET', keys.policy(args.pool, component), unpack(of_policy))}
end
return reply.measured(amounts.format(clock.now), listed,
  redis.call('HMGET', keys.pool(args.pool), unpack(fields({'limit', 'used', 'children_reserved', 'patience_held', 'victim_held'}))),
  redis.call('ZCARD', keys.pool_queue(args.pool)), redis.call('ZCARD', keys.pool_allocations(args.pool)),
  redis.call('HLEN', keys.pool_victims(args.pool)), policies)
