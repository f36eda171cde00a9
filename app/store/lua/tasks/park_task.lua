-- Keep a task until its request is granted: the request enters the queue now, or when its time has come. In place of an allocation
-- that the task itself has, both are done in one step.
-- @use clock grant_loop releases requests tasks
-- @keys idempotency leases task
-- @args now events_kept chunk remember_s task name id spec key digest message due_ms most replaced fence
-- @reply parked task request more
-- @reply known task request more
-- @reply conflict
-- @reply exists
-- @reply stale_fence status reason

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local before = args.key ~= '' and redis.call('GET', keys.idempotency(args.key))
if before then
  local task, digest = string.match(before, '^task/(%S+) (%S+)$')
  if task ~= args.task or digest ~= args.digest then return reply.conflict() end
  local more = grant_loop.settle(tonumber(args.chunk))
  local shown, request = tasks.describe(task)
  return reply.known(shown, request, more)
end

local old, named
if args.replaced ~= '' then
  old = requests.load(args.replaced)
  if not old then return reply.stale_fence('gone', '') end
  if old.task ~= args.task or old.fence ~= args.fence or not redis.call('ZSCORE', keys.leases(), old.id) then
    return reply.stale_fence(old.status, old.reason or '')
  end
  named = redis.call('HGET', keys.task(args.task), 'name')
  releases.release(old.id, args.fence, 'failed')
elseif redis.call('EXISTS', keys.task(args.task)) == 1 then
  return reply.exists()
end

local task = {id = args.task, name = args.name, spec = args.spec}
redis.call('HSET', keys.task(task.id), 'name', args.name, 'spec', args.spec, 'most', args.most, 'message', args.message)
if old then tasks.replace(task, old, named == args.name) end
if args.due_ms ~= '' and tonumber(args.due_ms) > clock.now then
  tasks.delay(task, tonumber(args.due_ms))
else
  tasks.enter(task, args.id)
end
if args.key ~= '' then
  redis.call('SET', keys.idempotency(args.key), 'task/' .. task.id .. ' ' .. args.digest, 'EX', args.remember_s)
end
local more = grant_loop.settle(tonumber(args.chunk))
local shown, request = tasks.describe(task.id)
return reply.parked(shown, request, more)
