-- Read the run times of some policies of a pool.
-- @reads pool_run_times
-- @args pool components
-- @reply found counts

local run_times = {}
for i, component in ipairs(cjson.decode(args.components)) do run_times[i] = redis.call('HGETALL', keys.pool_run_times(args.pool, component)) end
return reply.found(run_times)
