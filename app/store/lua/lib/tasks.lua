-- Tasks: a message that is kept until its request is granted, and the requests the task has, one after the other.
-- @use admission amounts outbox requests
-- @keys delayed leases task

local SHOWN = {'name', 'request', 'due_ms', 'sent', 'sent_fence', 'lost', 'returned', 'most', 'ended', 'told', 'age', 'saved', 'begun', 'spec'}

-- All that is kept of a task but its message; nil if there is none.
function tasks.load(id)
  local values = redis.call('HMGET', keys.task(id), unpack(SHOWN))
  if not values[1] then return nil end
  local task = {id = id}
  for i, name in ipairs(SHOWN) do task[name] = values[i] or nil end
  return task
end

-- The same for an answer, name and value in turn.
function tasks.flat(task)
  local flat = {'id', task.id, 'component', cjson.decode(task.spec)[2]}  -- of the fields of an ask it is the first
  for _, name in ipairs({'name', 'request', 'due_ms', 'sent', 'sent_fence', 'lost', 'ended'}) do
    if task[name] then requests.set_all(flat, {name}, task[name]) end
  end
  return flat
end

-- Its request now, if it has one.
function tasks.request(task)
  return task.request and requests.load(task.request)
end

-- The task as it stands now and its request, both flat for an answer; of one that is over all that is left is its name.
function tasks.describe(id)
  local task = tasks.load(id)
  local request = task and tasks.request(task)
  if not request then return task and tasks.flat(task) or {'id', id}, {} end
  local flat = requests.flat(request)
  requests.set_all(flat, {'lapses'}, request.lease_s and redis.call('ZSCORE', keys.leases(), request.id) or '')
  return tasks.flat(task), flat
end

function tasks.is_unstarted(request)
  return (request.started_ms or '') == '' and (request.status == states.allocated or request.status == states.preempting)
end

-- Whether a request may still change.
function tasks.is_open(request)
  return string.find(transitions, ' ' .. request.status .. '>', 1, true) ~= nil
end

-- A task is over when its last request is, or was never made; all that is left to do is to tell its worker.
function tasks.is_over(task, request)
  if task.ended or task.due_ms then return task.ended ~= nil end
  if not request then return task.request ~= nil end
  return not tasks.is_open(request)
end

-- How often it was sent under the fence its request has.
function tasks.tries(task, request)
  return task.sent_fence == request.fence and tonumber(task.sent) or 0
end

-- Put it off until then.
function tasks.delay(task, due_ms)
  redis.call('HSET', keys.task(task.id), 'due_ms', amounts.format(due_ms))
  redis.call('ZADD', keys.delayed(), amounts.format(due_ms), task.id)
  outbox.announce()
end

-- What the next request has from the one before: its place among equals, the checkpoint to go on from, and that it has begun.
function tasks.inherit(task, before)
  task.age, task.begun = before.seq .. ' ' .. before.submitted_ms, before.begun or ''
  if before.checkpointed_ms then task.saved = before.checkpointed_ms .. ' ' .. (before.reference or '') end
  redis.call('HSET', keys.task(task.id), 'age', task.age, 'saved', task.saved or '', 'begun', task.begun)
end

-- The same for a message of its own, which has not begun: the place and, if it is the same work, the checkpoint.
function tasks.replace(task, before, same)
  local saved = same and before.checkpointed_ms and before.checkpointed_ms .. ' ' .. (before.reference or '') or ''
  task.age, task.saved = before.seq .. ' ' .. before.submitted_ms, saved
  redis.call('HSET', keys.task(task.id), 'age', task.age, 'saved', saved, 'begun', '')
end

-- Its request, under a new id, enters the queue.
function tasks.enter(task, id)
  local spec = {id = id, fields = cjson.decode(task.spec)}
  local at_ms, reference = string.match(task.saved or '', '^(%S+) (.*)$')
  if at_ms then
    requests.set_all(spec.fields, {'checkpointed_ms'}, at_ms)
    requests.set_all(spec.fields, {'resume'}, '1')
    if reference ~= '' then requests.set_all(spec.fields, {'reference'}, reference) end
  end
  if task.begun == '1' then requests.set_all(spec.fields, {'begun'}, '1') end
  redis.call('HSET', keys.task(task.id), 'request', id)
  redis.call('HDEL', keys.task(task.id), 'due_ms')
  if task.age then
    local seq, submitted_ms = string.match(task.age, '^(%S+) (%S+)$')
    return admission.enter_successor(spec, seq, submitted_ms)
  end
  admission.admit(spec)
end
