-- Claim the nudge, so that only one of the listening workers sends a task, and return how long it has to wait. The gap to the
-- last nudge is five times the duration of a reconcile: nudges cost at most a fifth of a core.
-- @use amounts clock nudges
-- @writes counters nudge
-- @args now
-- @reply claimed wait_ms
-- @reply not_pending

if not nudges.state_is('pending') then return reply.not_pending() end

clock.start(args.now)
local times = redis.call('HMGET', keys.counters(), 'reconcile_last_ms', 'nudged_ms')
local gap = math.max(20, 5 * (tonumber(times[1]) or 0))
local due_ms = math.max(clock.now, (tonumber(times[2]) or 0) + gap)
due_ms = math.min(due_ms, clock.now + gap)  -- the clock may have been set back

local wait_ms = amounts.format(due_ms - clock.now)
redis.call('SET', keys.nudge(), 'sent', 'PX', amounts.format(due_ms - clock.now + 5000))
redis.call('HSET', keys.counters(), 'nudged_ms', amounts.format(due_ms))
return reply.claimed(wait_ms)
