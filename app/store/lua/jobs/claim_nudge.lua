-- Claim the nudge, so that of all who heard it one sends a task, and learn how long to wait with it: not before the last one is
-- as long ago as five reconciles of this workspace take, whoever sent it. So being nudged costs a fifth of a core at most.
-- @use amounts clock nudges
-- @keys nudge counters
-- @args now
-- @reply claimed wait_ms
-- @reply unasked

if not nudges.state_is('asked') then return reply.unasked() end

clock.start(args.now)
local known = redis.call('HMGET', keys.counters(), 'reconcile_last_ms', 'nudged_ms')
local gap = math.max(20, 5 * (tonumber(known[1]) or 0))
local due = math.max(clock.now, (tonumber(known[2]) or 0) + gap)
due = math.min(due, clock.now + gap)  -- a clock may have been put back

local wait = amounts.format(due - clock.now)
redis.call('SET', keys.nudge(), 'sent', 'PX', amounts.format(due - clock.now + 5000))
redis.call('HSET', keys.counters(), 'nudged_ms', amounts.format(due))
return reply.claimed(wait)
