-- Delete the policy of a component, unless it has waiters or allocations. If it is a template with instances, the reply is `instances`:
-- the caller deletes the idle ones and calls again.
-- @use accounts clock deletions operation_replies promises quotas rechecks requests unfinished_work
-- @reads pool_instances pool_queue_syncs pool_unfinished
-- @writes unfinished
-- @args now events_kept chunk op pool component
-- @reply deleted more
-- @reply in_use queued active
-- @reply unfinished
-- @reply instances
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)
if operation_replies.find(args.op) then return reply.deleted(unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
local policy = pool and accounts.policy(args.pool, args.component)
if not policy then return reply.not_found() end
if redis.call('EXISTS', keys.pool_unfinished(args.pool), keys.pool_queue_syncs(args.pool)) > 0 then  -- its queue may still name deleted waiters
  redis.call('SADD', keys.unfinished(), args.pool)
  return reply.unfinished()
end
if redis.call('EXISTS', keys.pool_instances(args.pool, args.component)) == 1 then return reply.instances() end
local queued, active = tonumber(policy.fields.queue_length or 0), policy.used.step_run or 0
if queued + active > 0 then return reply.in_use(queued, active) end

quotas.update_reserved_sums(pool, quotas.parent(pool, policy), promises.of(policy), -1)
deletions.policy(args.pool, args.component)
operation_replies.save(args.op)
rechecks.start(pool)
return reply.deleted(unfinished_work.resume(tonumber(args.chunk)))
