-- Check that each lane of a range has waiters, and compare the stored number of policies with the policies of the pools.
-- @use accounts amounts audit_findings declared_policies
-- @reads lane pools
-- @writes lanes meta
-- @args cursor count repair
-- @reply audited differences cursor

audit_findings.start(args.repair)

local scanned = redis.call('SSCAN', keys.lanes(), args.cursor, 'COUNT', args.count)
for _, id in ipairs(scanned[2]) do
  if redis.call('EXISTS', keys.lane(id)) == 0 and audit_findings.add('lane', id, 'listed', nil) then redis.call('SREM', keys.lanes(), id) end
end

local stored, policies = redis.call('HGET', keys.meta(), 'policies') or '0', 0
for _, name in ipairs(redis.call('HKEYS', keys.pools())) do policies = policies + declared_policies.count(accounts.pool(name)) end
if tonumber(stored) ~= policies and audit_findings.add('counter', 'policies', stored, amounts.format(policies)) then
  redis.call('HSET', keys.meta(), 'policies', amounts.format(policies))
end
return reply.audited(audit_findings.list(), scanned[1])
