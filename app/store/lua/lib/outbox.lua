-- The outbox: tasks to be sent off, by when (ms): granted ones, and those that will never run, of which their worker has to hear. Whoever sends them is told at once.
-- @use amounts clock
-- @keys outbox posted task unstarted

local told

-- Who sends tasks off is told to look; once a call.
function outbox.tell()
  if told then return end
  told = true
  redis.pcall('PUBLISH', keys.posted(), '')  -- who may not publish waits for the next look
end

function outbox.put(task)
  redis.call('ZADD', keys.outbox(), amounts.whole(clock.now), task)
  redis.call('ZREM', keys.unstarted(), task)
  outbox.tell()
end

-- A task is over: nothing of it is kept.
function outbox.forget(task)
  redis.call('ZREM', keys.outbox(), task)
  redis.call('ZREM', keys.unstarted(), task)
  redis.call('DEL', keys.task(task))
end
