-- Delete a group that has no children.
-- @use accounts clock operations promises removals requests reviews rounds
-- @keys pool_groups pool_policies
-- @args now kept chunk op pool group
-- @reply deleted more
-- @reply in_use child
-- @reply not_found

clock.start(args.now)
requests.keep(args.kept)
if operations.done(args.op) then return reply.deleted(rounds.advance(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
local group = pool and accounts.group(args.pool, args.group)
if not group then return reply.not_found() end
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do
  if accounts.policy(args.pool, name).is.group == args.group then return reply.in_use('policy:' .. name) end
end
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.pool))) do
  if accounts.group(args.pool, name).is.parent == args.group then return reply.in_use('group:' .. name) end
end

promises.book(pool, promises.parent(pool, group), group.reserved, -1)
removals.group(args.pool, args.group)
operations.note(args.op)
reviews.begin(pool)
return reply.deleted(rounds.advance(tonumber(args.chunk)))
