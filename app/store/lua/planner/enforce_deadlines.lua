-- Enforce passed deadlines of victims (not of leases), at most `chunk` and within the work budget: extend once for a victim that
-- reports progress, then terminate, then force. A victim of a closed hold is orphaned instead.
-- @use accounts amounts clock grant_loop orphans pool_changes preemptions requests work_budget
-- @reads pool_victims
-- @writes meta preemption_deadlines
-- @args now events_kept chunk
-- @reply enforced terminated forced more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, terminated, forced = tonumber(args.chunk), 0, 0
local later = amounts.format(clock.after(60))
local due_ids = redis.call('ZRANGEBYSCORE', keys.preemption_deadlines(), '-inf', amounts.format(clock.now), 'LIMIT', 0, count)
if #due_ids > 0 then redis.call('HSET', keys.meta(), 'departed_ms', amounts.format(clock.now)) end  -- a server out of memory refuses this write

local function extend(pool, request)
  if request.answered ~= '1' or request.extended == '1' then return false end
  local extension_ms = math.floor(tonumber(pool.fields.checkpoint_timeout_s or const.CHECKPOINT_TIMEOUT_S) * 500)
  local deadline = amounts.format(math.max(clock.now, tonumber(request.deadline_ms) + extension_ms))
  requests.save(request, {'extended', '1', 'deadline_ms', deadline})
  redis.call('ZADD', keys.preemption_deadlines(), deadline, request.id)
  return true
end

for i, id in ipairs(due_ids) do
  if i > 1 and work_budget.is_used_up() then break end
  redis.call('ZADD', keys.preemption_deadlines(), later, id)  -- a broken victim does not block the next call
  local request = requests.load(id)
  local pool = request and request.status == states.preempting and accounts.pool(request.pool)
  if not pool or not accounts.policy(request.pool, request.component) then redis.call('ZREM', keys.preemption_deadlines(), id)  -- lost
  elseif pool.fields.orphaning and orphans.is_pending(pool, redis.call('HGET', keys.pool_victims(pool.name), id)) then
    orphans.orphan(pool, id)
    pool_changes.add(pool.name, {'request:' .. id})
  elseif request.directive == 'checkpoint' then
    if not extend(pool, request) then
      preemptions.terminate(pool, request)
      terminated = terminated + 1
    end
  else
    preemptions.complete(request, 'forced')
    forced = forced + 1
  end
end
local more = grant_loop.settle(count)
if #due_ids == count or work_budget.is_used_up() then more = 1 end
return reply.enforced(terminated, forced, more)
