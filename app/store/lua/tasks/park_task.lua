-- Park a task until its request is granted: the request enters the queue now, or at the time given. With `replaced` the task
-- first releases the allocation it has, in the same step.
-- @use bodies clock grant_loop leases releases requests submissions task_delays tasks
-- @writes idempotency task
-- @args now events_kept chunk remember_s task name id spec key digest message due_ms most replaced fence limits
-- @reply parked task request more
-- @reply known task request more
-- @reply conflict
-- @reply exists
-- @reply limited subject name limit present
-- @reply stale_fence status reason

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local remembered = args.key ~= '' and redis.call('GET', keys.idempotency(args.key))
if remembered then
  local task, digest = string.match(remembered, '^task/(%S+) (%S+)$')
  if task ~= args.task or digest ~= args.digest then return reply.conflict() end
  local more = grant_loop.settle(tonumber(args.chunk))
  local task_row, request = tasks.describe(task)
  return reply.known(task_row, request, more)
end

local replaced, old_name
if args.replaced ~= '' then
  replaced = requests.load(args.replaced)
  if not replaced then return reply.stale_fence('gone', '') end
  if replaced.task ~= args.task or not leases.is_held(replaced, args.fence) then
    return reply.stale_fence(replaced.status, replaced.reason or '')
  end
  old_name = redis.call('HGET', keys.task(args.task), 'name')
  releases.release(replaced.id, args.fence, 'failed')
elseif redis.call('EXISTS', keys.task(args.task)) == 1 then
  return reply.exists()
end

local task = {id = args.task, name = args.name, spec = args.spec}
local bytes, is_delayed = #args.message + #args.spec, args.due_ms ~= '' and tonumber(args.due_ms) > clock.now
local spec, plan
if not replaced then
  spec = task_delays.request_spec(task, args.id)
  spec.limits, spec.message_bytes, spec.is_delayed = args.limits ~= '' and cjson.decode(args.limits) or nil, bytes, is_delayed
  plan = submissions.prepare(spec)
  if plan.refusal then return reply.limited(unpack(plan.refusal)) end
end

if replaced then bodies.delete(redis.call('HGET', keys.task(task.id), 'bytes') or '0') end  -- unless its release has deleted it
redis.call('HSET', keys.task(task.id), 'name', args.name, 'spec', args.spec, 'most', args.most, 'message', args.message, 'bytes', bytes)
if is_delayed or replaced then bodies.save(bytes) end
if replaced then tasks.replace(task, replaced, old_name == args.name) end
if is_delayed then
  task_delays.delay(task, tonumber(args.due_ms))
else
  tasks.enter(task, args.id, spec, plan)
end
if args.key ~= '' then
  redis.call('SET', keys.idempotency(args.key), 'task/' .. task.id .. ' ' .. args.digest, 'EX', args.remember_s)
end
local more = grant_loop.settle(tonumber(args.chunk))
local task_row, request = tasks.describe(task.id)
return reply.parked(task_row, request, more)
