-- Mark that tasks taken from the outbox could not be sent: they are due again later, unless they became due sooner.
-- @use amounts clock counters
-- @writes outbox
-- @args now tasks again_ms
-- @reply noted

clock.start(args.now)

local moved_count = 0
for i, id in ipairs(cjson.decode(args.tasks)) do
  local due_ms = tonumber(redis.call('ZSCORE', keys.outbox(), id))
  local again_ms = amounts.format(clock.now + tonumber(args.again_ms) + i - 1)  -- in their order
  if due_ms and due_ms > clock.now then moved_count = moved_count + redis.call('ZADD', keys.outbox(), 'CH', again_ms, id) end
end
if moved_count > 0 then counters.add('dispatch_failures') end
return reply.noted()
