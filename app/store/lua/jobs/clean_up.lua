-- End at most `chunk` due items of each kind: expired leases, waiters without polls, ended requests after their retention (rejected
-- requests after an hour, and the oldest beyond `max_ended`), and idle instances of templates.
-- If the clock was set back, deadlines that are too far away are cut first; `times_left` is 1 if the next call has more to cut. If the
-- clock was set forward, leases and queue TTLs that ended by the jump begin anew once. `expected`: the time that the clock should
-- show according to the caller, empty if the caller does not know.
-- @use amounts clock clock_jumps future_times grant_loop grants idle_policies lanes limits requests retention work_budget
-- @reads ended rejected request
-- @writes leases meta waiting
-- @args now events_kept chunk retention_s available_since_ms expected
-- @reply cleaned expired_leases expired_waiters pruned_requests idle_policies cut_times times_left now more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, now = tonumber(args.chunk), amounts.format(clock.now)

-- Call a function with each id, until the work budget is used up. Return the number of calls, and whether more ids may be due.
local function for_each(ids, finish)
  for i, id in ipairs(ids) do
    if i > 1 and work_budget.is_used_up() then return i - 1, true end
    finish(id)
  end
  return #ids, #ids == count
end

local function for_each_due(key, from_ms, until_ms, finish)
  return for_each(redis.call('ZRANGEBYSCORE', key, from_ms, until_ms, 'LIMIT', 0, count), finish)
end

local function expire(set, id, reason, take_out)
  local request, fields = requests.load(id), {}
  if not request then return redis.call('ZREM', set, id) end  -- lost; the audit finds its units
  take_out(request)
  requests.finish(request, states.expired, 'expired', {'reason', reason}, fields)
  requests.save(request, fields)
end

-- First write: a server out of memory refuses this write, and lets ZREM pass. So no lease expires while heartbeats are refused.
local last_ms = redis.call('HGET', keys.meta(), 'swept_ms')
redis.call('HSET', keys.meta(), 'swept_ms', now)
local cut_times, times_left = future_times.cut(last_ms, args.expected, count)
local jumped_ms = clock_jumps.find(args.expected)
if jumped_ms and clock_jumps.renew(jumped_ms, count) then times_left = 1 end
local due_from = jumped_ms and '(' .. amounts.format(jumped_ms) or '-inf'

local leases_ended, more_leases = for_each_due(keys.leases(), due_from, now, function(id) expire(keys.leases(), id, 'lease_lapsed', grants.take_back) end)

-- Return the deadline that a waiter would have if its last poll had come when the service became available again.
local function deadline_after_outage(id)
  local ttl_s = args.available_since_ms ~= '' and redis.call('HGET', keys.request(id), 'queue_ttl_s')
  return ttl_s and math.min(clock.now, tonumber(args.available_since_ms)) + tonumber(ttl_s) * 1000 or 0
end

local expired_waiters = 0
local _, more_waiters = for_each_due(keys.waiting(), due_from, now, function(id)
  local deadline = deadline_after_outage(id)
  if deadline > clock.now then return redis.call('ZADD', keys.waiting(), 'XX', amounts.format(deadline), id) end
  expire(keys.waiting(), id, 'not_polled', function(request) grants.dequeue(request, lanes.of(request)) end)
  expired_waiters = expired_waiters + 1
end)

local function delete(id) retention.delete({id}) end
local retained_from_ms, rejected_from_ms = clock.now - tonumber(args.retention_s) * 1000, clock.now - const.REJECTED_KEPT_S * 1000
local old_count, more_old = for_each_due(keys.ended(), '-inf', amounts.format(retained_from_ms), delete)
local rejected_count, more_rejected = for_each_due(keys.rejected(), '-inf', amounts.format(rejected_from_ms), delete)
local excess = redis.call('ZCARD', keys.ended()) - limits.of_workspace('max_ended', const.MAX_ENDED)
local excess_count, more_excess = for_each(excess > 0 and redis.call('ZRANGE', keys.ended(), 0, math.min(excess, count) - 1) or {}, delete)
local pruned_count = old_count + rejected_count + excess_count

local idle_count, more_idle = idle_policies.delete_due(count)

local more = grant_loop.settle(count)
if more_idle or more_leases or more_waiters or more_old or more_rejected or more_excess then more = 1 end
return reply.cleaned(leases_ended, expired_waiters, pruned_count, idle_count, cut_times, times_left, now, more)
