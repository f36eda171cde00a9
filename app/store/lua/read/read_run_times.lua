-- How long allocations of some of a pool's policies have run, as far as it is known.
-- @keys pool_run_times
-- @args pool components
-- @reply found counts

local counts = {}
for i, component in ipairs(cjson.decode(args.components)) do counts[i] = redis.call('HGETALL', keys.pool_run_times(args.pool, component)) end
return reply.found(counts)
