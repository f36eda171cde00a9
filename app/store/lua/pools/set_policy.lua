-- Connect a component to a pool, or replace how it is connected.
-- @use accounts amounts clock grants operation_replies quotas rechecks requests unfinished_work
-- @keys policy component_pools pool_policies
-- @args now events_kept chunk op pool component priority profile group reserved limit weight settings
-- @reply set created more
-- @reply refused code account key wants bound
-- @reply not_found what

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local before = operation_replies.find(args.op)
if before then return reply.set(before, unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found('pool') end
local parent = args.group == '' and pool or accounts.group(args.pool, args.group)
if not parent then return reply.not_found('group') end

local now = accounts.policy(args.pool, args.component)
local wanted = {reserved = amounts.decode(args.reserved).of, limit = amounts.decode(args.limit).of}
local moves = now and quotas.parent(pool, now) ~= parent
if moves and quotas.in_use(now) then return reply.refused('moves_in_use', now.id, '-', '0', '0') end
local settings = cjson.decode(args.settings)
local no = quotas.refusal(pool, parent, now, 'policy:' .. args.component, wanted, settings)
if no then return reply.refused(unpack(no)) end

if moves then grants.end_holds_through(pool, now) end
if now then quotas.update_reserved_sums(pool, quotas.parent(pool, now), now.reserved, -1) end
quotas.update_reserved_sums(pool, parent, wanted.reserved, 1)
local key = keys.policy(args.pool, args.component)
quotas.write(key, now, wanted, settings)
redis.call('HSET', key, 'priority', args.priority, 'profile', args.profile, 'weight', args.weight)
if args.group ~= '' then redis.call('HSET', key, 'group', args.group) else redis.call('HDEL', key, 'group') end
if not now then quotas.number_account(pool, key) end
redis.call('SADD', keys.pool_policies(args.pool), args.component)
redis.call('ZADD', keys.component_pools(args.component), '-' .. args.priority, args.pool)
local created = now and 0 or 1
operation_replies.save(args.op, created)
rechecks.start(pool)
return reply.set(created, unfinished_work.resume(tonumber(args.chunk)))
