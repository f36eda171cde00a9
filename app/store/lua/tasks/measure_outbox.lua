-- Read the sizes of the outbox for the metrics, and the time since which its oldest task waits.
-- @use amounts clock requests
-- @reads delayed outbox task unstarted
-- @args now
-- @reply viewed waiting delayed unstarted oldest now

clock.start(args.now)
local oldest
for _, task in ipairs(redis.call('ZRANGE', keys.outbox(), 0, 9)) do
  local id = redis.call('HGET', keys.task(task), 'request')
  local request = id and requests.load(id)
  local since = request and ((request.ended_ms or '') ~= '' and request.ended_ms or request.granted_ms)
  if since and (not oldest or tonumber(since) < tonumber(oldest)) then oldest = since end
end
return reply.viewed(redis.call('ZCARD', keys.outbox()), redis.call('ZCARD', keys.delayed()), redis.call('ZCARD', keys.unstarted()), oldest, amounts.format(clock.now))
