-- Read the time (ms) since which the API answers without an outage. An outage is a pause in its answers of more than `gap_s`. During an
-- outage the time is now. It is empty if the API never answered.
-- @use amounts clock
-- @reads availability
-- @args now gap_s
-- @reply available since_ms

clock.start(args.now)
local times = redis.call('HMGET', keys.availability(), 'last_ms', 'since_ms')
local last_ms, since_ms = tonumber(times[1]), tonumber(times[2])
if not last_ms or not since_ms then return reply.available('') end
local is_answering = last_ms <= clock.now and clock.now - last_ms <= tonumber(args.gap_s) * 1000
return reply.available(amounts.format(is_answering and math.min(since_ms, clock.now) or clock.now))
