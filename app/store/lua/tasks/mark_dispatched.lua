-- Mark that tasks taken from the outbox were sent. A task that is not started or acknowledged within `start_ms` is sent again.
-- @use amounts clock counters tasks
-- @writes outbox task unstarted
-- @args now sent start_ms
-- @reply done

clock.start(args.now)
local until_ms = amounts.format(clock.now + tonumber(args.start_ms))

-- True if the named request ended; false if the task has another request by now.
local function is_over(task, request, named_request)
  return (named_request == '' or request and request.id == named_request) and tasks.is_over(task, request)
end

for _, dispatch in ipairs(cjson.decode(args.sent)) do
  local id, fence, tries, ended_request = dispatch[1], dispatch[2], tonumber(dispatch[3]), dispatch[4]
  local task = tasks.load(id)
  local request = task and tasks.request(task)
  if fence == '' then
    if task and is_over(task, request, ended_request) and (tonumber(task.end_notices) or 0) < tries then
      counters.add(tries > 1 and 'redispatched' or 'dispatched')
      redis.call('HSET', keys.task(id), 'end_notices', amounts.format(tries))
      redis.call('ZADD', keys.unstarted(), until_ms, id)
      redis.call('ZREM', keys.outbox(), id)
    end
  elseif request and request.fence == fence and tasks.is_unstarted(request) and tasks.tries(task, request) < tries then
    counters.add(tries > 1 and 'redispatched' or 'dispatched')
    redis.call('HSET', keys.task(id), 'sent', amounts.format(tries), 'sent_fence', fence)
    redis.call('ZADD', keys.unstarted(), until_ms, id)
    redis.call('ZREM', keys.outbox(), id)
  end
end
return reply.done()
