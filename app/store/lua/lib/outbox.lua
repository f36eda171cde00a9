-- The outbox: tasks to be sent, each with the time (ms) at which it is due. The message of a granted task is sent to its
-- broker. A task that will never run gets an end notice, which a worker acknowledges.
-- @use amounts bodies clock
-- @writes outbox outbox_ready task unstarted

local is_announced

-- Notify the dispatcher that the outbox has entries, once per call.
function outbox.announce()
  if is_announced then return end
  is_announced = true
  redis.pcall('PUBLISH', keys.outbox_ready(), '')  -- without the right to publish, the dispatcher finds the entry at its next poll
end

function outbox.put(task)
  redis.call('ZADD', keys.outbox(), amounts.format(clock.now), task)
  redis.call('ZREM', keys.unstarted(), task)
  outbox.announce()
end

-- Handle the end of a request of a task. If the worker reported the outcome, delete the task; else send an end notice. Ignore
-- a request that the task no longer has.
function outbox.request_ended(request)
  if redis.call('HGET', keys.task(request.task), 'request') ~= request.id then return end
  if (request.outcome or '') ~= '' then return outbox.delete_task(request.task) end
  outbox.put(request.task)
end

local function cut_times(key, latest_ms, count)
  for _, task in ipairs(redis.call('ZREVRANGEBYSCORE', key, '+inf', '(' .. amounts.format(latest_ms), 'LIMIT', 0, count)) do
    redis.call('ZADD', key, 'XX', amounts.format(latest_ms), task)
  end
end

-- Shorten times that lie further ahead than the longest pause or the time to start, because the clock was set back: at most
-- `count` of each.
function outbox.cut_future_times(pause_ms, start_ms, count)
  cut_times(keys.outbox(), clock.now + pause_ms + count, count)  -- the tasks of one call follow each other by a millisecond
  cut_times(keys.unstarted(), clock.now + start_ms, count)
end

-- Delete a task that is over.
function outbox.delete_task(task)
  redis.call('ZREM', keys.outbox(), task)
  redis.call('ZREM', keys.unstarted(), task)
  bodies.delete(redis.call('HGET', keys.task(task), 'bytes') or '0')
  redis.call('DEL', keys.task(task))
end
