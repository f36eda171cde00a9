-- Tasks: a message kept until its request is granted, and the requests of the task, one after the other.
-- @use admission bodies leases requests submissions task_delays
-- @writes task

local FIELDS = {'name', 'request', 'due_ms', 'sent', 'sent_fence', 'lost', 'returned', 'most', 'ended', 'end_notices', 'age', 'saved', 'begun', 'spec', 'bytes', 'limited_by'}

-- Return a task without its message; nil if there is none.
function tasks.load(id)
  local values = redis.call('HMGET', keys.task(id), unpack(FIELDS))
  if not values[1] then return nil end
  local task = {id = id}
  for i, name in ipairs(FIELDS) do task[name] = values[i] or nil end
  return task
end

-- Return a task for a reply, name and value in turn.
function tasks.flat(task)
  local flat = {'id', task.id, 'component', cjson.decode(task.spec)[2]}  -- the first field of a spec
  for _, name in ipairs({'name', 'request', 'due_ms', 'sent', 'sent_fence', 'lost', 'ended'}) do
    if task[name] then requests.set_all(flat, {name}, task[name]) end
  end
  return flat
end

-- Return the present request of a task; nil if it has none.
function tasks.request(task)
  return task.request and requests.load(task.request)
end

-- Return the task and its request, both flat for a reply; of a deleted task only its id.
function tasks.describe(id)
  local task = tasks.load(id)
  local request = task and tasks.request(task)
  if not request then return task and tasks.flat(task) or {'id', id}, {} end
  local flat = requests.flat(request)
  requests.set_all(flat, {'lapses'}, leases.end_ms(request))
  return tasks.flat(task), flat
end

function tasks.is_unstarted(request)
  return (request.started_ms or '') == '' and (request.status == states.allocated or request.status == states.preempting)
end

-- True if a request is not in a final state.
function tasks.is_open(request)
  return string.find(transitions, ' ' .. request.status .. '>', 1, true) ~= nil
end

-- True if the last request of a task ended, or was never made: only the message of its end is still to be sent.
function tasks.is_over(task, request)
  if task.ended or task.due_ms then return task.ended ~= nil end
  if not request then return task.request ~= nil end
  return not tasks.is_open(request)
end

-- Return how often a task was sent under the fence of its request.
function tasks.tries(task, request)
  return task.sent_fence == request.fence and tonumber(task.sent) or 0
end

-- Store what the next request of a task inherits: submission number, last checkpoint, and whether the work has started.
function tasks.inherit(task, predecessor)
  task.age, task.begun = predecessor.seq .. ' ' .. predecessor.submitted_ms, predecessor.begun or ''
  if predecessor.checkpointed_ms then task.saved = predecessor.checkpointed_ms .. ' ' .. (predecessor.reference or '') end
  redis.call('HSET', keys.task(task.id), 'age', task.age, 'saved', task.saved or '', 'begun', task.begun)
end

-- Store the same for a new message of a task, whose work has not started: submission number, and the checkpoint if it is the
-- same work.
function tasks.replace(task, predecessor, same_work)
  local checkpoint = same_work and predecessor.checkpointed_ms and predecessor.checkpointed_ms .. ' ' .. (predecessor.reference or '') or ''
  task.age, task.saved = predecessor.seq .. ' ' .. predecessor.submitted_ms, checkpoint
  redis.call('HSET', keys.task(task.id), 'age', task.age, 'saved', checkpoint, 'begun', '')
end

-- Queue the next request of a task, under a new id. The first request of a task without a delay comes prepared.
function tasks.enter(task, id, prepared_spec, plan)
  local spec = prepared_spec or task_delays.request_spec(task, id)
  local checkpointed_ms, reference = string.match(task.saved or '', '^(%S+) (.*)$')
  if checkpointed_ms then
    requests.set_all(spec.fields, {'checkpointed_ms'}, checkpointed_ms)
    requests.set_all(spec.fields, {'resume'}, '1')
    if reference ~= '' then requests.set_all(spec.fields, {'reference'}, reference) end
  end
  if task.begun == '1' then requests.set_all(spec.fields, {'begun'}, '1') end
  redis.call('HSET', keys.task(task.id), 'request', id)
  if plan then return submissions.admit(plan, spec) end
  if task.due_ms then task_delays.finish(task) end
  if task.bytes then bodies.move(task.bytes) end
  if task.age then
    local seq, submitted_ms = string.match(task.age, '^(%S+) (%S+)$')
    return admission.enter_successor(spec, seq, submitted_ms)
  end
  spec.is_exempt = true
  submissions.admit(submissions.prepare(spec), spec)
end
