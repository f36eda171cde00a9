-- Who waits and who holds units, unless these are too many; and the newest event, after which this may be so no more.
-- @use amounts
-- @keys events leases waiting
-- @args most
-- @reply found last ids
-- @reply too_many live

local live = redis.call('ZCARD', keys.waiting()) + redis.call('ZCARD', keys.leases())
if live > tonumber(args.most) then return reply.too_many(amounts.format(live)) end
local newest = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
local ids = redis.call('ZRANGE', keys.waiting(), 0, -1)
for _, id in ipairs(redis.call('ZRANGE', keys.leases(), 0, -1)) do ids[#ids + 1] = id end
return reply.found(newest[1] and newest[1][1] or '0-0', ids)
