-- End what time has ended, a bounded part at a time: lapsed leases, waiters nobody polls for, and requests kept long enough.
-- @use amounts clock grant_loop grants lanes requests
-- @keys leases waiting ended requests request meta
-- @args now events_kept chunk retention_s
-- @reply cleaned expired_leases expired_waiters pruned_requests more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, now = tonumber(args.chunk), amounts.format(clock.now)

local function due(key, until_ms)
  return redis.call('ZRANGEBYSCORE', key, '-inf', until_ms, 'LIMIT', 0, count)
end

local function expire(set, id, reason, leave)
  local request, fields = requests.load(id), {}
  if not request then return redis.call('ZREM', set, id) end  -- lost; what it held is found by the audit
  leave(request)
  requests.finish(request, states.expired, 'expired', {'reason', reason}, fields)
  requests.save(request, fields)
end

-- A write that a server out of memory refuses, before any it would let pass: nothing lapses while heartbeats are refused.
redis.call('HSET', keys.meta(), 'swept_ms', now)

local lapsed = due(keys.leases(), now)
for _, id in ipairs(lapsed) do expire(keys.leases(), id, 'lease_lapsed', grants.take_back) end

local forgotten = due(keys.waiting(), now)
for _, id in ipairs(forgotten) do
  expire(keys.waiting(), id, 'not_polled', function(request) grants.dequeue(request, lanes.of(request)) end)
end

local pruned = due(keys.ended(), amounts.format(clock.now - tonumber(args.retention_s) * 1000))
for _, id in ipairs(pruned) do
  redis.call('DEL', keys.request(id))
  redis.call('ZREM', keys.requests(), id)
  redis.call('ZREM', keys.ended(), id)
end

local more = grant_loop.settle(count)
if #lapsed == count or #forgotten == count or #pruned == count then more = 1 end
return reply.cleaned(#lapsed, #forgotten, #pruned, more)
