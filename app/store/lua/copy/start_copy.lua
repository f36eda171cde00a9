-- Begin a workspace copy: return the time, the id of the newest event, and of each pool the number of its newest change without an event,
-- the number of its rules, and whether its lanes are being rechecked. If too many requests are queued or allocated, return their number.
-- @use accounts amounts clock pool_changes
-- @reads events leases pools waiting
-- @args now most
-- @reply started now event pools
-- @reply too_many live

clock.start(args.now)
local count = redis.call('ZCARD', keys.waiting()) + redis.call('ZCARD', keys.leases())
if count > tonumber(args.most) then return reply.too_many(amounts.format(count)) end
local newest, rows = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1), {}
for i, name in ipairs(redis.call('HKEYS', keys.pools())) do
  local fields = accounts.pool(name).fields
  rows[i] = {name, amounts.format(pool_changes.last(name)), fields.rules or '0', fields.reviewing or ''}
end
return reply.started(amounts.format(clock.now), newest[1] and newest[1][1] or '0-0', rows)
