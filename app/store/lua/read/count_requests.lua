-- Count the requests of the workspace: the queued ones, those with units (allocated or preempting), the preempting ones, the ended ones.
-- @reads ended leases pool_victims pools waiting
-- @reply counted queued holding preempting ended

local victim_count = 0
for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do victim_count = victim_count + redis.call('HLEN', keys.pool_victims(pool)) end
return reply.counted(redis.call('ZCARD', keys.waiting()), redis.call('ZCARD', keys.leases()), victim_count, redis.call('ZCARD', keys.ended()))
