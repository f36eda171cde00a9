-- What the metrics count, how many requests were ever submitted, and how many wait, hold units and have to leave just now.
-- @keys counters leases meta pool_victims pools waiting
-- @reply found counts submitted queued live leaving

local leaving = 0
for _, pool in ipairs(redis.call('HKEYS', keys.pools())) do leaving = leaving + redis.call('HLEN', keys.pool_victims(pool)) end
return reply.found(redis.call('HGETALL', keys.counters()), redis.call('HGET', keys.meta(), 'seq') or '0',
  redis.call('ZCARD', keys.waiting()), redis.call('ZCARD', keys.leases()), leaving)
