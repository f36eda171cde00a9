-- Start the work of an allocation: one runner per fence, and the lease of a task begins now.
-- @use amounts clock counters leases requests
-- @writes outbox task unstarted
-- @args now events_kept id fence runner
-- @reply alive status lapses directive deadline
-- @reply already_started
-- @reply stale_fence status reason
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local request = requests.load(args.id)
if not request then return reply.not_found() end
if not leases.is_held(request, args.fence) then return reply.stale_fence(request.status, request.reason) end
local runner = request.runner or ''
if runner ~= '' and runner ~= args.runner then return reply.already_started() end

-- Mark that the message of the task has reached a worker.
local function mark_task_started()
  redis.call('ZREM', keys.outbox(), request.task)
  redis.call('ZREM', keys.unstarted(), request.task)
  redis.call('HDEL', keys.task(request.task), 'returned')
  local name, sent_fence = unpack(redis.call('HMGET', keys.task(request.task), 'name', 'sent_fence'))
  if name and sent_fence ~= request.fence then  -- the worker may be faster than the confirmation of the dispatcher
    redis.call('HSET', keys.task(request.task), 'sent', '1', 'sent_fence', request.fence)
    counters.add('dispatched')
  end
end

local lease_end_ms = leases.prolong(request)
if runner == '' then
  if request.task then mark_task_started() end
  local changes = {'runner', args.runner, 'started_ms', amounts.format(clock.now)}
  if request.task then requests.set_all(changes, {'begun'}, '1') end  -- even if the task has lost its units since
  requests.add_event(request, 'started', changes)
end
return reply.alive(request.status, lease_end_ms, request.directive or '', request.deadline_ms or '')
