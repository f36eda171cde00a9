-- Create a group, or replace its quotas, settings and parent.
-- @use accounts amounts clock grants operation_replies quotas rechecks requests unfinished_work
-- @writes group pool_groups
-- @args now events_kept chunk op pool group parent reserved limit weight settings
-- @reply set created more
-- @reply refused code account key wants bound
-- @reply not_found what

local DEEPEST = 8

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local earlier_reply = operation_replies.find(args.op)
if earlier_reply then return reply.set(earlier_reply, unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found('pool') end
local parent = args.parent == '' and pool or accounts.group(args.pool, args.parent)
if not parent then return reply.not_found('group') end

local group_account = accounts.group(args.pool, args.group)

-- Return how many groups are between `group` and the pool, itself included, and whether the changed group is among them.
local function depth(group)
  local steps, passes_group = 0, false
  while group ~= pool do
    steps, passes_group = steps + 1, passes_group or group == group_account
    group = quotas.parent(pool, group)
  end
  return steps, passes_group
end

local parent_depth, is_circle = depth(parent)
if is_circle then return reply.refused('circle', group_account.id, '-', '0', '0') end
local moves, deepest = group_account and quotas.parent(pool, group_account) ~= parent, parent_depth + 1
for _, name in ipairs(moves and redis.call('SMEMBERS', keys.pool_groups(args.pool)) or {}) do
  local steps, is_below = depth(accounts.group(args.pool, name))
  if is_below then deepest = math.max(deepest, parent_depth + 1 + steps - depth(group_account)) end
end
if deepest > DEEPEST then
  return reply.refused('too_deep', 'group:' .. args.group, '-', amounts.format(deepest), amounts.format(DEEPEST))
end
local wanted = {reserved = amounts.decode(args.reserved).of, limit = amounts.decode(args.limit).of}
if moves and quotas.in_use(group_account) then return reply.refused('moves_in_use', group_account.id, '-', '0', '0') end
local settings = cjson.decode(args.settings)
local refusal = quotas.refusal(pool, parent, group_account, 'group:' .. args.group, wanted, settings)
if refusal then return reply.refused(unpack(refusal)) end

if moves then grants.end_holds_through(pool, group_account) end
if group_account then quotas.update_reserved_sums(pool, quotas.parent(pool, group_account), group_account.reserved, -1) end
quotas.update_reserved_sums(pool, parent, wanted.reserved, 1)
local key = keys.group(args.pool, args.group)
quotas.write(key, group_account, wanted, settings)
redis.call('HSET', key, 'weight', args.weight)
if args.parent ~= '' then redis.call('HSET', key, 'parent', args.parent) else redis.call('HDEL', key, 'parent') end
if not group_account then quotas.number_account(pool, key) end
redis.call('SADD', keys.pool_groups(args.pool), args.group)
local created = group_account and 0 or 1
operation_replies.save(args.op, created)
rechecks.start(pool)
return reply.set(created, unfinished_work.resume(tonumber(args.chunk)))
