-- Park a task until its request is granted: the request enters the queue now, or at the time given. With `replaced` the task
-- first releases the allocation it has, in the same step.
-- @use clock grant_loop leases releases requests tasks
-- @writes idempotency task
-- @args now events_kept chunk remember_s task name id spec key digest message due_ms most replaced fence
-- @reply parked task request more
-- @reply known task request more
-- @reply conflict
-- @reply exists
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
redis.call('HSET', keys.task(task.id), 'name', args.name, 'spec', args.spec, 'most', args.most, 'message', args.message)
if replaced then tasks.replace(task, replaced, old_name == args.name) end
if args.due_ms ~= '' and tonumber(args.due_ms) > clock.now then
  tasks.delay(task, tonumber(args.due_ms))
else
  tasks.enter(task, args.id)
end
if args.key ~= '' then
  redis.call('SET', keys.idempotency(args.key), 'task/' .. task.id .. ' ' .. args.digest, 'EX', args.remember_s)
end
local more = grant_loop.settle(tonumber(args.chunk))
local task_row, request = tasks.describe(task.id)
return reply.parked(task_row, request, more)
