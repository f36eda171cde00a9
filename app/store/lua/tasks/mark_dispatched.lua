-- What was taken from the outbox has been sent off: it is looked after again if by then the task has not begun, or nobody has heard
-- that it will never run.
-- @use amounts clock counters tasks
-- @keys outbox task unstarted
-- @args now sent start_ms
-- @reply done

clock.start(args.now)
local until_ms = amounts.format(clock.now + tonumber(args.start_ms))

-- Whether what was said to be over is, and not another request that a task of this name has by now.
local function is_over(task, request, said)
  return (said == '' or request and request.id == said) and tasks.is_over(task, request)
end

for _, one in ipairs(cjson.decode(args.sent)) do
  local id, fence, tries, of = one[1], one[2], tonumber(one[3]), one[4]
  local task = tasks.load(id)
  local request = task and tasks.request(task)
  if fence == '' then
    if task and is_over(task, request, of) and (tonumber(task.told) or 0) < tries then
      counters.add(tries > 1 and 'redispatched' or 'dispatched')
      redis.call('HSET', keys.task(id), 'told', amounts.format(tries))
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
