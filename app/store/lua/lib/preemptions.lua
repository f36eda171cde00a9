-- The preemption protocol: directive and deadline of each step, and the end: requeued, or preempted for good.
-- @use account_updates accounts admission amounts clock counters grants lanes leases requests victim_holds victims
-- @reads meta pool_victims
-- @writes pool_preemptions preemption_deadlines

local PREEMPTION_FIELDS = {'directive', 'deadline_ms', 'preempting_ms', 'answered', 'extended', 'deferred_s', 'failed', 'rank', 'by_rank', 'orphaned_ms', 'reprieved'}
local RECENT_MS = 60000
local MOST_FORGOTTEN = 100  -- the most old preemptions that a call deletes: more than a call begins

local function grace_ms(pool) return tonumber(pool.fields.grace_s or const.GRACE_S) * 1000 end
local function checkpoint_timeout_ms(pool) return tonumber(pool.fields.checkpoint_timeout_s or const.CHECKPOINT_TIMEOUT_S) * 1000 end

-- Return the rank of a request, as `priority,class`.
function preemptions.rank(policy, request) return policy.fields.priority .. ',' .. request.class end

local function start_step(request, directive, deadline, changes)
  requests.set_all(changes, {'directive'}, directive)
  requests.set_all(changes, {'deadline_ms'}, amounts.format(deadline))
  if redis.call('HGET', keys.pool_victims(request.pool), request.id) == '-' then  -- the deadline is paused
    requests.set_all(changes, {'orphaned_ms'}, amounts.format(clock.now))
  else
    redis.call('ZADD', keys.preemption_deadlines(), amounts.format(deadline), request.id)
  end
end

-- Begin the second step: the directive `terminate`. A requested checkpoint has failed.
function preemptions.terminate(pool, request)
  local changes = {}
  start_step(request, 'terminate', clock.now + grace_ms(pool), changes)
  requests.set_all(changes, {'failed'}, '1')
  counters.add('failed_checkpoints|' .. pool.name)
  requests.add_event(request, 'terminating', changes)
end

-- Complete a preemption: the victim exited (`preempted`, with its `outcome`) or is forced (`forced`). The pool gets its units
-- back. The request is queued again under its submission number, unless its retries are used up or its checkpoint is lost.
function preemptions.complete(request, event, outcome, details)
  local pool, lane, fields = accounts.pool(request.pool), lanes.of(request), {}
  local preemption_count = (tonumber(request.preemptions) or 0) + (leases.has_started(request) and 1 or 0)  -- a victim that had not started lost nothing
  local checkpoint_lost = (event == 'forced' or request.failed == '1') and pool.fields.requeue_failed_checkpoint == '0'
  local requeues = not checkpoint_lost and (request.retries == '-1' or preemption_count <= tonumber(request.retries))
  local event_details = details or {rank = request.rank or '', by_rank = request.by_rank}
  local changes = {'preemptions', amounts.format(preemption_count), 'left_fence', request.fence, 'left_by', outcome or '',
    'preempted_fence', redis.call('HGET', keys.meta(), 'fence'), 'resume', request.checkpointed_ms and '1' or '0'}
  requests.set_all(changes, PREEMPTION_FIELDS, '')
  grants.take_back(request, true)
  if not requeues then
    requests.finish(request, states.preempted, event, changes, fields, event_details)
    return requests.save(request, fields)
  end
  requests.set_all(changes, {'queued_ms'}, amounts.format(clock.now))
  requests.transition(request, states.queued, event, changes, fields, event_details)
  for _, name in ipairs({'pool', 'fence', 'granted_ms'}) do requests.set(request, fields, name, '') end
  for _, name in ipairs((request.runner or '') ~= '' and {'runner', 'started_ms'} or {}) do requests.set(request, fields, name, '') end
  admission.requeue(request, lane, fields)
  if request.status == states.queued then counters.add('requeued|' .. pool.name) end
  requests.save(request, fields)
end

-- Begin a preemption for the owner of a hold (`by_rank`, `by_origin`), or (nil) for an account over its limit. The units are
-- taken back at once if the grace period is 0, or if the work has not started.
function preemptions.begin(path, hold, request, reason, by_rank, by_origin)
  local policy, pool, lane, fields = path[1], path[#path], lanes.of(request), {}
  local changes = {'reason', reason, 'preempted_by', hold and hold.id or '', 'by_origin', by_origin or '', 'preempting_fence', request.fence}
  local details = {rank = preemptions.rank(policy, request), by_rank = by_rank}
  counters.add('preemptions|' .. pool.name .. '|' .. (policy.fields.profile or 'batch') .. '|' .. reason)
  victims.set_owner(pool, request.id, hold and hold.id or '!')
  if hold then victim_holds.update_expected(pool, hold, path, lane.units, 1) end
  if grace_ms(pool) == 0 or not leases.has_started(request) then
    for i = 1, #changes, 2 do requests.set(request, fields, changes[i], changes[i + 1]) end
    requests.save(request, fields)
    return preemptions.complete(request, 'preempted', nil, details)
  end
  account_updates.leave_stacks(path, lane.units)
  victims.count_units(path, lane.units, 1)
  local saves = request.checkpoint ~= 'none'
  requests.set_all(changes, {'preempting_ms'}, amounts.format(clock.now))
  requests.set_all(changes, {'rank'}, details.rank)
  requests.set_all(changes, {'by_rank'}, by_rank)
  start_step(request, saves and 'checkpoint' or 'terminate', clock.now + (saves and checkpoint_timeout_ms or grace_ms)(pool), changes)
  requests.transition(request, states.preempting, 'preempting', changes, fields, details)
  requests.save(request, fields)
end

-- Delete records of preemptions that are too old for the bound per minute of the pool.
function preemptions.forget_old(pool)
  local key = keys.pool_preemptions(pool.name)
  local old = redis.call('ZRANGEBYSCORE', key, '-inf', amounts.format(clock.now - RECENT_MS), 'LIMIT', 0, MOST_FORGOTTEN)
  if #old > 0 then redis.call('ZREM', key, unpack(old)) end
end

-- True if the allocation was reprieved so recently that the client reported its exit before it learned of the reprieve. Then
-- the exit keeps the reason of the preemption.
function preemptions.accept_late_exit(request)
  local reprieved_ms, by, reason = string.match(request.reprieved or '', '^(%S+) (%S*) (%S+)$')
  if not reprieved_ms or request.preempting_fence ~= request.fence or clock.now - tonumber(reprieved_ms) > RECENT_MS then return false end
  local fields = {}
  leases.finish(request.id)  -- before HSET, which a server out of memory refuses as the first write
  requests.set(request, fields, 'preempted_by', by)
  requests.set(request, fields, 'reason', reason)
  requests.save(request, fields)
  return true
end

-- Reprieve a victim: no hold needs its units any more.
function preemptions.reprieve(request)
  local changes, fields = {}, {}
  requests.set_all(changes, {'reprieved'}, amounts.format(clock.now) .. ' ' .. request.preempted_by .. ' ' .. request.reason)
  local path = accounts.path(request.pool, request.component)
  account_updates.shift_group_stacks(path)
  victims.count_units(path, lanes.of(request).units, -1)
  victims.remove(path[#path], request.id)
  redis.call('ZREM', keys.preemption_deadlines(), request.id)
  local cleared_fields = {unpack(PREEMPTION_FIELDS, 1, #PREEMPTION_FIELDS - 1)}
  requests.set_all(changes, cleared_fields, '')
  requests.transition(request, states.allocated, 'reprieved', changes, fields)
  for _, name in ipairs({'reason', 'preempted_by'}) do requests.set(request, fields, name, '') end
  requests.save(request, fields)
end
