-- A page of a pool's queue in order, after a place: those in share merged with those who must borrow; with fair share tier by tier.
-- @use accounts amounts fair_share_order fair_share_pages lanes queue_order requests
-- @keys lane pool_queue pool_in_share
-- @args pool after count
-- @reply page ids places last
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local after, count, queued = tonumber(args.after), tonumber(args.count), keys.pool_queue(args.pool)

if fair_share_order.applies(pool) then
  local ids, places = fair_share_pages.read(pool, after, count)
  return reply.page(ids, places, #ids < count and '' or places[#places])
end

-- The lowest score a waiter of a band can have behind the place `after`.
local function floor_of(band)
  if pool.fields.order ~= 'priority_first' then return math.max(0, after + 1 + (1 - band) * const.BAND) end
  local ranked, seq = math.floor((after + 1) / const.AGES) + const.BAND / const.AGES, (after + 1) % const.AGES
  local rank, at = math.floor(ranked / 2), ranked % 2
  if at == band then return rank * const.AGES + seq end
  return (at < band and rank or rank + 1) * const.AGES
end

local streams = {}
for _, id in ipairs(redis.call('SMEMBERS', keys.pool_in_share(args.pool))) do
  local policy = accounts.policy(args.pool, lanes.open(id).component)
  streams[#streams + 1] = {lane = id, policy = policy, from = amounts.format(queue_order.lane_score_from(pool, policy, floor_of(0)))}
end
local borrowers = {from = amounts.format(floor_of(1))}
streams[#streams + 1] = borrowers

local function is_inshare(id)
  local request = requests.load(id)
  return redis.call('SISMEMBER', keys.pool_in_share(args.pool), lanes.of(request).id) == 1
end

local skipped, SKIPPED = 0, 500  -- of those in share, so many at most are passed over in one call

-- The next of a stream, read ahead by one; borrowers are the queue less those in share.
local function fetch(stream)
  repeat
    stream.id = nil
    skipped = skipped + (stream.lane and 0 or 1)
    stream.stalled = not stream.lane and skipped > SKIPPED + count
    if stream.stalled then return end
    local next_one = redis.call('ZRANGEBYSCORE', stream.lane and keys.lane(stream.lane) or queued, stream.from, '+inf', 'WITHSCORES',
      'LIMIT', 0, 1)
    if not next_one[1] then return end
    stream.from = '(' .. next_one[2]
    if stream.lane then stream.place = queue_order.queue_score(pool, stream.policy, tonumber(next_one[2]), true)
    else stream.place = queue_order.with_share_flag(pool, tonumber(next_one[2]), false) end
    stream.id = next_one[1]
  until stream.lane or not is_inshare(stream.id)
end

for _, stream in ipairs(streams) do fetch(stream) end
local ids, places = {}, {}
while #ids < count do
  local first
  for _, stream in ipairs(streams) do
    if stream.id and (not first or stream.place < first.place) then first = stream end
  end
  if borrowers.stalled and not (first and first.place < borrowers.place) then
    return reply.page(ids, places, amounts.format(borrowers.place))
  end
  if not first then return reply.page(ids, places, '') end
  ids[#ids + 1], places[#places + 1] = first.id, amounts.format(first.place)
  fetch(first)
end
return reply.page(ids, places, places[#places])
