-- List a page of the queue of a pool behind a queue score: lanes in share merged with those that borrow; with fair share by tier.
-- @use accounts amounts fair_share_order fair_share_pages lanes queue_order requests work_budget
-- @reads lane pool_in_share pool_queue
-- @args pool after count
-- @reply page ids queue_scores last
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local after, count, queued = tonumber(args.after), tonumber(args.count), keys.pool_queue(args.pool)

if fair_share_order.applies(pool) then
  local ids, queue_scores = fair_share_pages.read(pool, after, count)
  return reply.page(ids, queue_scores, #ids < count and '' or queue_scores[#queue_scores])
end

-- Return the lowest rank score that a waiter with this flag (0 in share, 1 borrows) can have behind the queue score `after`.
local function lowest_rank_score(borrow_flag)
  if pool.fields.order ~= 'priority_first' then return math.max(0, after + 1 + (1 - borrow_flag) * const.BORROWING_STEP) end
  local rank_part, seq = math.floor((after + 1) / const.MAX_SUBMISSIONS) + const.BORROWING_STEP / const.MAX_SUBMISSIONS, (after + 1) % const.MAX_SUBMISSIONS
  local rank, flag = math.floor(rank_part / 2), rank_part % 2
  if flag == borrow_flag then return rank * const.MAX_SUBMISSIONS + seq end
  return (flag < borrow_flag and rank or rank + 1) * const.MAX_SUBMISSIONS
end

-- A stream is one lane in share, or the borrowing waiters of the pool's queue. If very many lanes are in share, the waiters in share of
-- the pool's queue are one stream.
local streams, MOST_STREAMS = {}, 32
if redis.call('SCARD', keys.pool_in_share(args.pool)) <= MOST_STREAMS then
  for _, id in ipairs(redis.call('SMEMBERS', keys.pool_in_share(args.pool))) do
    local policy = accounts.policy(args.pool, lanes.open(id).component)
    streams[#streams + 1] = {key = keys.lane(id), policy = policy, from = amounts.format(queue_order.lane_score_from(pool, policy, lowest_rank_score(0)))}
  end
else
  streams[1] = {key = queued, wants_share = true, from = amounts.format(lowest_rank_score(0))}
end
streams[#streams + 1] = {key = queued, wants_share = false, from = amounts.format(lowest_rank_score(1))}

local function is_in_share(id)
  local request = requests.load(id)
  return request ~= nil and redis.call('SISMEMBER', keys.pool_in_share(args.pool), lanes.of(request).id) == 1
end

-- Read the next waiter of a stream. A stream of the pool's queue skips the waiters of the other side. If the work budget is used up
-- meanwhile, the stream stalls: its queue score is that of the last waiter it read.
local function fetch(stream)
  repeat
    stream.id = nil
    stream.stalled = stream.has_begun and not stream.policy and work_budget.is_used_up()
    if stream.stalled then return end
    stream.has_begun = true
    local members = redis.call('ZRANGEBYSCORE', stream.key, stream.from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not members[1] then return end
    stream.from = '(' .. members[2]
    if stream.policy then stream.queue_score = queue_order.queue_score(pool, stream.policy, tonumber(members[2]), true)
    else stream.queue_score = queue_order.with_share_flag(pool, tonumber(members[2]), stream.wants_share) end
    stream.id = members[1]
  until stream.policy or is_in_share(stream.id) == stream.wants_share
end

for _, stream in ipairs(streams) do fetch(stream) end
local ids, queue_scores = {}, {}
while #ids < count do
  local first, stalled = nil, nil
  for _, stream in ipairs(streams) do
    if stream.id and (not first or stream.queue_score < first.queue_score) then first = stream end
    if stream.stalled and (not stalled or stream.queue_score < stalled.queue_score) then stalled = stream end
  end
  if stalled and not (first and first.queue_score < stalled.queue_score) then
    return reply.page(ids, queue_scores, amounts.format(stalled.queue_score))
  end
  if not first then return reply.page(ids, queue_scores, '') end
  ids[#ids + 1], queue_scores[#queue_scores + 1] = first.id, amounts.format(first.queue_score)
  if work_budget.is_used_up() then break end
  fetch(first)
end
return reply.page(ids, queue_scores, queue_scores[#queue_scores])
