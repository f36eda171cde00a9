-- End what is due, at most `chunk` of each kind: expired leases, waiters that are not polled, and ended requests to be pruned.
-- @use amounts clock grant_loop grants lanes requests
-- @writes ended leases meta request requests waiting
-- @args now events_kept chunk retention_s
-- @reply cleaned expired_leases expired_waiters pruned_requests more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, now = tonumber(args.chunk), amounts.format(clock.now)

local function due_members(key, until_ms)
  return redis.call('ZRANGEBYSCORE', key, '-inf', until_ms, 'LIMIT', 0, count)
end

local function expire(set, id, reason, take_out)
  local request, fields = requests.load(id), {}
  if not request then return redis.call('ZREM', set, id) end  -- lost; the audit finds its units
  take_out(request)
  requests.finish(request, states.expired, 'expired', {'reason', reason}, fields)
  requests.save(request, fields)
end

-- Write first, as a server out of memory refuses this write and lets ZREM pass: no lease expires while heartbeats are refused.
redis.call('HSET', keys.meta(), 'swept_ms', now)

local lease_ids = due_members(keys.leases(), now)
for _, id in ipairs(lease_ids) do expire(keys.leases(), id, 'lease_lapsed', grants.take_back) end

local waiter_ids = due_members(keys.waiting(), now)
for _, id in ipairs(waiter_ids) do
  expire(keys.waiting(), id, 'not_polled', function(request) grants.dequeue(request, lanes.of(request)) end)
end

local ended_ids = due_members(keys.ended(), amounts.format(clock.now - tonumber(args.retention_s) * 1000))
for _, id in ipairs(ended_ids) do
  redis.call('DEL', keys.request(id))
  redis.call('ZREM', keys.requests(), id)
  redis.call('ZREM', keys.ended(), id)
end

local more = grant_loop.settle(count)
if #lease_ids == count or #waiter_ids == count or #ended_ids == count then more = 1 end
return reply.cleaned(#lease_ids, #waiter_ids, #ended_ids, more)
