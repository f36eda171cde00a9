-- Record that a process of the API answers. After a pause of more than `gap_s`, or if the clock went back, a new stretch begins.
-- @use amounts clock
-- @writes availability
-- @args now gap_s
-- @reply recorded

clock.start(args.now)
local last_ms = tonumber(redis.call('HGET', keys.availability(), 'last_ms')) or 0
local now = amounts.format(clock.now)
redis.call('HSET', keys.availability(), 'last_ms', now)
if last_ms > clock.now or clock.now - last_ms > tonumber(args.gap_s) * 1000 then
  redis.call('HSET', keys.availability(), 'since_ms', now)
end
return reply.recorded()
