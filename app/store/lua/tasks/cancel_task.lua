-- Cancel a task that has not started: its request leaves the queue, never enters it, or returns its units.
-- @use clock grant_loop grants lanes outbox requests task_delays tasks
-- @writes delayed task
-- @args now events_kept chunk task
-- @reply cancelled task request more
-- @reply conflict status
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local task = tasks.load(args.task)
if not task then return reply.not_found() end
local request = tasks.request(task)

if redis.call('ZREM', keys.delayed(), task.id) == 1 then
  task_delays.finish(task)
  redis.call('HSET', keys.task(task.id), 'ended', 'cancelled')
  outbox.put(task.id)
elseif request and request.status == states.queued then
  local fields = {}
  grants.dequeue(request, lanes.of(request))
  requests.finish(request, states.cancelled, 'cancelled', {}, fields)
  requests.save(request, fields)
elseif request and tasks.is_unstarted(request) then
  local fields = {}
  grants.take_back(request)
  requests.finish(request, states.released, 'released', {}, fields)
  requests.save(request, fields)
  redis.call('HSET', keys.task(task.id), 'ended', 'cancelled')
elseif not (task.ended or request and request.status == states.cancelled) then
  return reply.conflict(request and request.status or 'gone')
end
local more = grant_loop.settle(tonumber(args.chunk))
local task_row, request_row = tasks.describe(task.id)
return reply.cancelled(task_row, request_row, more)
