-- The outbox: tasks to be sent off, by when (ms): granted ones, and those that will never run, of which their worker has to hear. Whoever sends them is told at once.
-- @use amounts clock
-- @keys outbox outbox_ready task unstarted

local told

-- Who sends tasks off is told to look; once a call.
function outbox.announce()
  if told then return end
  told = true
  redis.pcall('PUBLISH', keys.outbox_ready(), '')  -- who may not publish waits for the next look
end

function outbox.put(task)
  redis.call('ZADD', keys.outbox(), amounts.format(clock.now), task)
  redis.call('ZREM', keys.unstarted(), task)
  outbox.announce()
end

-- The request of a task is over: its worker knows, and nothing is kept, or has to hear of it. Only what the task has now counts.
function outbox.request_ended(request)
  if redis.call('HGET', keys.task(request.task), 'request') ~= request.id then return end
  if (request.outcome or '') ~= '' then return outbox.delete_task(request.task) end
  outbox.put(request.task)
end

-- A task is over: nothing of it is kept.
function outbox.delete_task(task)
  redis.call('ZREM', keys.outbox(), task)
  redis.call('ZREM', keys.unstarted(), task)
  redis.call('DEL', keys.task(task))
end
