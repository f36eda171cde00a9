-- Take the job lock of the reconcile. A later nudge is for the next pass. `why` is the reason to begin: `tick` (the clock), `shares`
-- (fair shares are due), `nudge` (ignored after a failed pass, until the next tick) or `missed` (a trigger found the lock taken). The
-- reply is `idle` if there is nothing to decide, and `seen` if the reason no longer holds. If another worker has the lock (`held`), that
-- worker makes another pass.
-- @use job_locks nudges
-- @reads pool pool_lanes pool_victims pools preemption_deadlines waiting
-- @writes job_lock
-- @args token ttl_ms why
-- @reply begun
-- @reply idle
-- @reply held
-- @reply seen

local function is_idle()
  if redis.call('EXISTS', keys.waiting(), keys.preemption_deadlines()) > 0 then return false end
  for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do
    if redis.call('EXISTS', keys.pool_victims(pool)) > 0 then return false end  -- a victim may be reprieved
    if (redis.call('HGET', keys.pool(pool), 'watched') or '0') ~= '0' then return false end  -- its rules changed, or a policy starves
  end
  return true
end

-- True if a fair-share pool has waiters or is watched.
local function has_fair_share_work()
  for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do
    local pool_fields = redis.call('HMGET', keys.pool(pool), 'discipline', 'watched')
    if pool_fields[1] == 'fair_share' and ((pool_fields[2] or '0') ~= '0' or redis.call('EXISTS', keys.pool_lanes(pool)) == 1) then return true end
  end
  return false
end

if args.why == 'shares' and not has_fair_share_work() then return reply.idle() end
if args.why == 'missed' and not nudges.state_is('missed') then return reply.seen() end
if args.why == 'nudge' and nudges.state_is('suppressed') then return reply.seen() end

if is_idle() then
  nudges.clear()
  return reply.idle()
end

if job_locks.other_holder('reconcile', args.token, args.ttl_ms) then
  nudges.mark_missed()
  return reply.held()
end

redis.call('SET', keys.job_lock('reconcile'), args.token, 'PX', args.ttl_ms)
nudges.clear()
return reply.begun()
