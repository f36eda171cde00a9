-- What was taken from the outbox could not be sent off: it is due again then, unless it has become due sooner for another reason.
-- @use amounts clock counters
-- @keys outbox
-- @args now tasks again_ms
-- @reply noted

clock.start(args.now)

local moved = 0
for i, id in ipairs(cjson.decode(args.tasks)) do
  local at = tonumber(redis.call('ZSCORE', keys.outbox(), id))
  local again = amounts.format(clock.now + tonumber(args.again_ms) + i - 1)  -- in their order
  if at and at > clock.now then moved = moved + redis.call('ZADD', keys.outbox(), 'CH', again, id) end
end
if moved > 0 then counters.add('dispatch_failures') end
return reply.noted()
