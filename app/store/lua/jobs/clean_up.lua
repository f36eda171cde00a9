-- End what is due, at most `chunk` of each kind: expired leases, waiters that are not polled, and ended requests to be pruned.
-- Times that lie too far ahead, after the clock was set back, are cut first; `times_left`: 1 if the next call goes on with them.
-- @use amounts clock future_times grant_loop grants lanes requests work_budget
-- @writes ended leases meta request requests waiting
-- @args now events_kept chunk retention_s available_since_ms
-- @reply cleaned expired_leases expired_waiters pruned_requests cut_times times_left more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, now = tonumber(args.chunk), amounts.format(clock.now)

-- Call a function with each due member of a sorted set, until the work budget ends. Return how many, and whether more may be due.
local function for_each_due(key, until_ms, finish)
  local ids, done = redis.call('ZRANGEBYSCORE', key, '-inf', until_ms, 'LIMIT', 0, count), 0
  for _, id in ipairs(ids) do
    if done > 0 and work_budget.is_used_up() then return done, true end
    finish(id)
    done = done + 1
  end
  return done, done == count
end

local function expire(set, id, reason, take_out)
  local request, fields = requests.load(id), {}
  if not request then return redis.call('ZREM', set, id) end  -- lost; the audit finds its units
  take_out(request)
  requests.finish(request, states.expired, 'expired', {'reason', reason}, fields)
  requests.save(request, fields)
end

-- Write first, as a server out of memory refuses this write and lets ZREM pass: no lease expires while heartbeats are refused.
local last_ms = redis.call('HGET', keys.meta(), 'swept_ms')
redis.call('HSET', keys.meta(), 'swept_ms', now)
local cut_times, times_left = future_times.cut(last_ms, count)

local leases_ended, more_leases = for_each_due(keys.leases(), now, function(id) expire(keys.leases(), id, 'lease_lapsed', grants.take_back) end)

-- Return the deadline of a waiter if it was last polled when the service became available again.
local function deadline_after_outage(id)
  local ttl_s = args.available_since_ms ~= '' and redis.call('HGET', keys.request(id), 'queue_ttl_s')
  return ttl_s and math.min(clock.now, tonumber(args.available_since_ms)) + tonumber(ttl_s) * 1000 or 0
end

local expired_waiters = 0
local _, more_waiters = for_each_due(keys.waiting(), now, function(id)
  local deadline = deadline_after_outage(id)
  if deadline > clock.now then return redis.call('ZADD', keys.waiting(), 'XX', amounts.format(deadline), id) end
  expire(keys.waiting(), id, 'not_polled', function(request) grants.dequeue(request, lanes.of(request)) end)
  expired_waiters = expired_waiters + 1
end)

local retained_from_ms = amounts.format(clock.now - tonumber(args.retention_s) * 1000)
local requests_pruned, more_ended = for_each_due(keys.ended(), retained_from_ms, function(id)
  redis.call('DEL', keys.request(id))
  redis.call('ZREM', keys.requests(), id)
  redis.call('ZREM', keys.ended(), id)
end)

local more = grant_loop.settle(count)
if more_leases or more_waiters or more_ended then more = 1 end
return reply.cleaned(leases_ended, expired_waiters, requests_pruned, cut_times, times_left, more)
