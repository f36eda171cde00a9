-- Compare the stored size of the kept bodies with their sum, `bytes`. Several calls made the sum after `saved` and `deleted` were
-- read. So the sum may have or lack the bodies that were saved or deleted since.
-- @use amounts audit_findings bodies
-- @reads meta
-- @args bytes saved deleted repair
-- @reply audited differences

audit_findings.start(args.repair)
local totals = redis.call('HMGET', keys.meta(), 'saved_bytes', 'deleted_bytes')
local saved, deleted, sum = tonumber(totals[1] or 0), tonumber(totals[2] or 0), tonumber(args.bytes)
local stored = saved - deleted
local least, most = sum - (deleted - tonumber(args.deleted)), sum + (saved - tonumber(args.saved))
local expected = math.min(math.max(stored, least), most)
if stored ~= expected and audit_findings.add('counter', 'bytes of bodies', amounts.format(stored), amounts.format(expected)) then
  if stored < expected then bodies.save(amounts.format(expected - stored)) else bodies.delete(amounts.format(stored - expected)) end
end
return reply.audited(audit_findings.list())
