-- Delayed tasks: their requests enter the queue at a time to come. Until then each counts as a waiter.
-- @use admission amounts clock lanes limits outbox waiter_counts
-- @reads meta
-- @writes delayed task

local POSTPONED_MS = 30000

-- Return the spec of the next request of a task.
function task_delays.request_spec(task, id) return {id = id, fields = cjson.decode(task.spec)} end

-- Return the subjects whose limits count a delayed task, and the lane that its request will enter.
local function limited_by(task)
  local request = admission.read_spec(task_delays.request_spec(task, task.id))
  admission.limit_by_component(request, {}, redis.call('HGET', keys.meta(), 'component:' .. request.component))
  return request.limited_by, lanes.of(request)
end

-- Return the lane that the request of a delayed task will enter.
function task_delays.lane(task)
  local _, lane = limited_by(task)
  return lane
end

-- Delay a task until `due_ms`. A delayed task counts as a waiter.
function task_delays.delay(task, due_ms)
  local subjects, lane = limited_by(task)
  waiter_counts.count(subjects, lane, 'task/' .. task.id)
  redis.call('HSET', keys.task(task.id), 'due_ms', amounts.format(due_ms), 'limited_by', subjects or '')
  redis.call('ZADD', keys.delayed(), amounts.format(due_ms), task.id)
  outbox.announce()
end

-- End the delay of a task. It no longer counts as a waiter.
function task_delays.finish(task)
  waiter_counts.uncount(task.limited_by, task_delays.lane(task), 'task/' .. task.id)
  redis.call('HDEL', keys.task(task.id), 'due_ms', 'limited_by')
end

-- Return the time (ms) that the next request of a task has to wait because its template has no room for a policy; 0 if it has room.
function task_delays.template_delay_ms(task)
  local lane = lanes.of(admission.read_spec(task_delays.request_spec(task, task.id)))
  return admission.has_full_templates(lane) and POSTPONED_MS or 0
end

-- Delay a task further if its request would exceed the limit of shapes, or if its template has no room for a further policy.
-- Return whether it was delayed. No limit of shapes delays a successor.
function task_delays.postpone(task)
  local lane = lanes.of(admission.read_spec(task_delays.request_spec(task, task.id)))
  local is_full = admission.has_full_templates(lane) or not task.age and limits.shape_refusal(lane) ~= nil
  if is_full then
    task_delays.finish(task)
    task_delays.delay(task, clock.now + POSTPONED_MS)
  end
  return is_full
end

