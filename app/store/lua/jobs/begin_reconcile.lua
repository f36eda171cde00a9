-- Begin to reconcile: take the lease of it; a nudge that comes from now on is for the next look. Nothing is to be done where
-- nobody waits and nobody leaves. Where another has the lease, that one has to look again, and soon. Why it begins: a `tick`;
-- time for `shares`, which are only counted where there are any; a `nudge`, which is of no use where the last look failed; or the lease was `missed`, and nobody may have looked since.
-- @use nudges
-- @keys job_lock preemption_deadlines pool pool_lanes pool_victims pools waiting
-- @args token ttl_ms why
-- @reply begun
-- @reply idle
-- @reply held
-- @reply seen

local function idle()
  if redis.call('EXISTS', keys.waiting(), keys.preemption_deadlines()) > 0 then return false end
  for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do
    if redis.call('EXISTS', keys.pool_victims(pool)) > 0 then return false end  -- somebody may be called back
    if (redis.call('HGET', keys.pool(pool), 'watched') or '0') ~= '0' then return false end  -- it has changed, or somebody starves there
  end
  return true
end

-- Whether somebody waits in a pool of fair shares, or it is watched: then it is time to see who has how much.
local function shared()
  for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do
    local two = redis.call('HMGET', keys.pool(pool), 'discipline', 'watched')
    if two[1] == 'fair_share' and ((two[2] or '0') ~= '0' or redis.call('EXISTS', keys.pool_lanes(pool)) == 1) then return true end
  end
  return false
end

if args.why == 'shares' and not shared() then return reply.idle() end
if args.why == 'missed' and not nudges.state_is('missed') then return reply.seen() end
if args.why == 'nudge' and nudges.state_is('hushed') then return reply.seen() end

if idle() then
  nudges.clear()
  return reply.idle()
end

local holder = redis.call('GET', keys.job_lock('reconcile'))
if holder and holder ~= args.token then
  nudges.mark_missed()
  return reply.held()
end

redis.call('SET', keys.job_lock('reconcile'), args.token, 'PX', args.ttl_ms)
nudges.clear()
return reply.begun()
