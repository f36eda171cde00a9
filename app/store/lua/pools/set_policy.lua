-- Create the policy of a component, or replace its quotas, settings and parent.
-- @use accounts amounts clock grants operation_replies pool_limits quotas rechecks requests unfinished_work
-- @writes component_pools meta policy pool_policies
-- @args now events_kept chunk op pool component priority profile group reserved limit weight settings
-- @reply set created more
-- @reply refused code account key wants bound
-- @reply not_found what
-- @reply limited subject name limit present

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local earlier_reply = operation_replies.find(args.op)
if earlier_reply then return reply.set(earlier_reply, unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found('pool') end
local parent = args.group == '' and pool or accounts.group(args.pool, args.group)
if not parent then return reply.not_found('group') end

local policy = accounts.policy(args.pool, args.component)
local wanted = {reserved = amounts.decode(args.reserved).of, limit = amounts.decode(args.limit).of}
local moves = policy and quotas.parent(pool, policy) ~= parent
if moves and quotas.in_use(policy) then return reply.refused('moves_in_use', policy.id, '-', '0', '0') end
local settings = cjson.decode(args.settings)
local refusal = quotas.refusal(pool, parent, policy, 'policy:' .. args.component, wanted, settings)
if refusal then return reply.refused(unpack(refusal)) end
local limit_refusal = not policy and pool_limits.refusal(0, 1)
if limit_refusal then return reply.limited(unpack(limit_refusal)) end

if moves then grants.end_holds_through(pool, policy) end
if policy then quotas.update_reserved_sums(pool, quotas.parent(pool, policy), policy.reserved, -1) end
quotas.update_reserved_sums(pool, parent, wanted.reserved, 1)
local key = keys.policy(args.pool, args.component)
quotas.write(key, policy, wanted, settings)
redis.call('HSET', key, 'priority', args.priority, 'profile', args.profile, 'weight', args.weight)
if args.group ~= '' then redis.call('HSET', key, 'group', args.group) else redis.call('HDEL', key, 'group') end
if not policy then
  quotas.number_account(pool, key)
  redis.call('HINCRBY', keys.meta(), 'policies', 1)
end
redis.call('SADD', keys.pool_policies(args.pool), args.component)
redis.call('ZADD', keys.component_pools(args.component), '-' .. args.priority, args.pool)
local created = policy and 0 or 1
operation_replies.save(args.op, created)
rechecks.start(pool)
return reply.set(created, unfinished_work.resume(tonumber(args.chunk)))
