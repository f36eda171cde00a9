-- Record a poll that is refused for its rate: the queue TTL of the waiter begins anew. `components` are the components that the caller
-- may see (`type/name`, or a pattern that ends with `*`; empty: all).
-- @use amounts clock component_patterns requests
-- @reads request
-- @writes waiting
-- @args now id components
-- @reply recorded
-- @reply ignored

clock.start(args.now)
local values = redis.call('HMGET', keys.request(args.id), 'component', 'queue_ttl_s', 'begun', 'status')
local request = {component = values[1], queue_ttl_s = values[2] or nil, begun = values[3] or nil, status = values[4]}
local ttl_s = request.status == states.queued and requests.queue_ttl_s(request)
if not ttl_s then return reply.ignored() end

local is_visible = args.components == '' or component_patterns.include(cjson.decode(args.components), request.component)
if not is_visible then return reply.ignored() end

redis.call('ZADD', keys.waiting(), 'XX', amounts.format(clock.after(ttl_s)), args.id)
return reply.recorded()
