-- Report the state of a checkpoint. The report prolongs the lease. A victim that reports `completed` without `routine` is
-- released, under either directive. Any other completed checkpoint is only stored.
-- @use accounts amounts checkpoints clock counters grant_loop leases operation_replies preemptions requests
-- @writes preemption_deadlines
-- @args now events_kept chunk op id fence state seconds reference routine
-- @reply alive status lapses directive deadline more
-- @reply left status more
-- @reply not_leaving status
-- @reply stale_fence status reason
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local request, fields = requests.load(args.id), {}
if not request then return reply.not_found() end
if args.state == 'completed' and args.routine == '' and request.left_fence == args.fence and request.left_by == 'completed' then
  return reply.left(request.status, grant_loop.settle(tonumber(args.chunk)))
end
if not leases.is_held_and_started(request, args.fence) then return reply.stale_fence(request.status, request.reason) end

local pool, is_requested = accounts.pool(request.pool), request.status == states.preempting and request.directive == 'checkpoint'
if args.state == 'defer' and request.status ~= states.preempting then return reply.not_leaving(request.status) end

local lease_end_ms = leases.prolong(request)

local function alive_reply()
  return reply.alive(request.status, lease_end_ms, request.directive or '', request.deadline_ms or '', grant_loop.settle(tonumber(args.chunk)))
end

-- Extend the deadline once per call, up to the maximum deferral of the pool.
local function defer()
  if operation_replies.find(args.op) then return end
  operation_replies.save(args.op)
  local deferred_s = tonumber(request.deferred_s) or 0
  local granted = math.min(tonumber(args.seconds), tonumber(pool.fields.max_deferral_s or const.MAX_DEFERRAL_S) - deferred_s)
  if granted <= 0 then return end
  local deadline = amounts.format(tonumber(request.deadline_ms) + granted * 1000)
  requests.set(request, fields, 'deferred_s', amounts.format(deferred_s + granted))
  requests.set(request, fields, 'deadline_ms', deadline)
  redis.call('ZADD', keys.preemption_deadlines(), 'XX', deadline, args.id)
end

if args.state == 'completed' then
  checkpoints.save(request, args.reference, fields)
  if request.status == states.preempting and args.routine == '' then
    counters.add_checkpoint(request.pool, clock.now - tonumber(request.preempting_ms))
    requests.set(request, fields, 'failed', '')
    requests.save(request, fields)
    preemptions.complete(request, 'preempted', 'completed')
    return reply.left(request.status, grant_loop.settle(tonumber(args.chunk)))
  end
elseif is_requested and args.state == 'failed' then
  preemptions.terminate(pool, request)
  return alive_reply()
elseif is_requested and args.state == 'defer' then
  defer()
elseif is_requested then
  requests.set(request, fields, 'answered', '1')
end
if #fields > 0 then requests.save(request, fields) end
return alive_reply()
