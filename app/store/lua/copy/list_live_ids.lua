-- List the requests that are queued or allocated, unless they are too many, and the id of the newest event.
-- @use amounts
-- @reads events leases waiting
-- @args most
-- @reply found last ids
-- @reply too_many live

local count = redis.call('ZCARD', keys.waiting()) + redis.call('ZCARD', keys.leases())
if count > tonumber(args.most) then return reply.too_many(amounts.format(count)) end
local newest_events = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
local ids = redis.call('ZRANGE', keys.waiting(), 0, -1)
for _, id in ipairs(redis.call('ZRANGE', keys.leases(), 0, -1)) do ids[#ids + 1] = id end
return reply.found(newest_events[1] and newest_events[1][1] or '0-0', ids)
