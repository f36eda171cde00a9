-- Read the counters of the metrics, the number of requests ever submitted, and the numbers queued, allocated and preempting now.
-- @reads counters leases meta pool_victims pools waiting
-- @reply found counts submitted queued live leaving

local victim_count = 0
for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do victim_count = victim_count + redis.call('HLEN', keys.pool_victims(pool)) end
return reply.found(redis.call('HGETALL', keys.counters()), redis.call('HGET', keys.meta(), 'seq') or '0',
  redis.call('ZCARD', keys.waiting()), redis.call('ZCARD', keys.leases()), victim_count)
