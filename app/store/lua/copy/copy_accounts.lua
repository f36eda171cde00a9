-- Read a page of the groups, the policies or the recent preemptions of a pool (`kind`) as a workspace copy needs them. The cursor is 0
-- at the end.
-- @use account_copies
-- @reads pool_groups pool_policies pool_preemptions
-- @args pool kind cursor count
-- @reply read rows cursor

local rows, page = {}
if args.kind == 'preemptions' then
  page = redis.call('ZSCAN', keys.pool_preemptions(args.pool), args.cursor, 'COUNT', args.count)
  rows[1] = {keys.pool_preemptions(args.pool), 'zset', page[2]}
elseif args.kind == 'groups' then
  page = redis.call('SSCAN', keys.pool_groups(args.pool), args.cursor, 'COUNT', args.count)
  for _, name in ipairs(page[2]) do account_copies.add_group(rows, args.pool, name) end
else
  page = redis.call('SSCAN', keys.pool_policies(args.pool), args.cursor, 'COUNT', args.count)
  for _, component in ipairs(page[2]) do account_copies.add_policy(rows, args.pool, component) end
end
return reply.read(rows, page[1])
