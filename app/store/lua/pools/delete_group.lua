-- Delete a group without children.
-- @use accounts clock deletions operation_replies quotas rechecks requests unfinished_work
-- @reads group policy pool_groups pool_policies
-- @args now events_kept chunk op pool group
-- @reply deleted more
-- @reply in_use child
-- @reply not_found

clock.start(args.now)
requests.set_stream_length(args.events_kept)
if operation_replies.find(args.op) then return reply.deleted(unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
local group = pool and accounts.group(args.pool, args.group)
if not group then return reply.not_found() end
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  if redis.call('HGET', keys.policy(args.pool, name), 'group') == args.group then return reply.in_use('policy:' .. name) end
end
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.pool))) do
  if redis.call('HGET', keys.group(args.pool, name), 'parent') == args.group then return reply.in_use('group:' .. name) end
end

quotas.update_reserved_sums(pool, quotas.parent(pool, group), group.reserved, -1)
deletions.group(args.pool, args.group)
operation_replies.save(args.op)
rechecks.start(pool)
return reply.deleted(unfinished_work.resume(tonumber(args.chunk)))
