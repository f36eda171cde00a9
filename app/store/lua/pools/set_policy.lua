-- Create the policy of a component, or replace its quotas, settings and parent. A change of a template changes its instances. If a template
-- with instances gets another parent, the reply is `instances`: the caller deletes the idle ones and calls again.
-- @use accounts amounts clock declared_policies grants operation_replies pool_limits promises quotas rechecks requests template_updates templates unfinished_work
-- @reads pool_instances
-- @writes component_pools policy pool_policies
-- @args now events_kept chunk op pool component priority profile group reserved limit weight settings
-- @reply set created more
-- @reply refused code account key wants bound
-- @reply not_found what
-- @reply limited subject name limit present
-- @reply instances

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local earlier_reply = operation_replies.find(args.op)
if earlier_reply then return reply.set(earlier_reply, unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found('pool') end
local parent = args.group == '' and pool or accounts.group(args.pool, args.group)
if not parent then return reply.not_found('group') end

local policy = accounts.policy(args.pool, args.component)
local settings, is_template = cjson.decode(args.settings), templates.is_template(args.component)
local wanted = {reserved = amounts.decode(args.reserved).of, limit = amounts.decode(args.limit).of, times = promises.times(pool, args.component, settings)}
local moves = policy and quotas.parent(pool, policy) ~= parent
if moves and quotas.in_use(policy) then return reply.refused('moves_in_use', policy.id, '-', '0', '0') end
local refusal = quotas.refusal(pool, parent, policy, 'policy:' .. args.component, wanted, settings)
if refusal then return reply.refused(unpack(refusal)) end
if moves and redis.call('EXISTS', keys.pool_instances(args.pool, args.component)) == 1 then return reply.instances() end
local is_new = not policy or policy.fields.template ~= nil
local limit_refusal = is_new and pool_limits.refusal(0, 1)
if limit_refusal then return reply.limited(unpack(limit_refusal)) end

if moves then grants.end_holds_through(pool, policy) end
if policy then quotas.update_reserved_sums(pool, quotas.parent(pool, policy), promises.of(policy), -1) end
local key = keys.policy(args.pool, args.component)
quotas.write(key, policy, wanted, settings)
redis.call('HSET', key, 'priority', args.priority, 'profile', args.profile, 'weight', args.weight)
if args.group ~= '' then redis.call('HSET', key, 'group', args.group) else redis.call('HDEL', key, 'group') end
if not policy then quotas.number_account(pool, key) end
if is_new then declared_policies.add(pool, args.component, policy) end
if is_template then redis.call('HSET', key, 'reserved_times', amounts.format(wanted.times)) end
quotas.update_reserved_sums(pool, parent, promises.wanted(wanted), 1)
redis.call('SADD', keys.pool_policies(args.pool), args.component)
redis.call('ZADD', keys.component_pools(args.component), '-' .. args.priority, args.pool)
local created = is_new and 1 or 0
operation_replies.save(args.op, created)
rechecks.start(pool)
if is_template and not is_new then template_updates.start(accounts.pool(args.pool), args.component) end
return reply.set(created, unfinished_work.resume(tonumber(args.chunk)))
