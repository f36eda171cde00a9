-- Make a group between a pool and its policies, or replace its numbers and parent.
-- @use accounts amounts clock grants operation_replies quotas rechecks requests unfinished_work
-- @keys group pool_groups
-- @args now events_kept chunk op pool group parent reserved limit weight settings
-- @reply set created more
-- @reply refused code account key wants bound
-- @reply not_found what

local DEEPEST = 8

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local before = operation_replies.find(args.op)
if before then return reply.set(before, unfinished_work.resume(tonumber(args.chunk))) end
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found('pool') end
local parent = args.parent == '' and pool or accounts.group(args.pool, args.parent)
if not parent then return reply.not_found('group') end

local now = accounts.group(args.pool, args.group)

-- How many groups stand one above the other from `group` to the pool, and whether `now` is one of them.
local function depth(group)
  local steps, meets = 0, false
  while group ~= pool do
    steps, meets = steps + 1, meets or group == now
    group = quotas.parent(pool, group)
  end
  return steps, meets
end

local above, circle = depth(parent)
if circle then return reply.refused('circle', now.id, '-', '0', '0') end
local moves, deepest = now and quotas.parent(pool, now) ~= parent, above + 1
for _, name in ipairs(moves and redis.call('SMEMBERS', keys.pool_groups(args.pool)) or {}) do
  local steps, below = depth(accounts.group(args.pool, name))
  if below then deepest = math.max(deepest, above + 1 + steps - depth(now)) end
end
if deepest > DEEPEST then
  return reply.refused('too_deep', 'group:' .. args.group, '-', amounts.format(deepest), amounts.format(DEEPEST))
end
local wanted = {reserved = amounts.decode(args.reserved).of, limit = amounts.decode(args.limit).of}
if moves and quotas.in_use(now) then return reply.refused('moves_in_use', now.id, '-', '0', '0') end
local settings = cjson.decode(args.settings)
local no = quotas.refusal(pool, parent, now, 'group:' .. args.group, wanted, settings)
if no then return reply.refused(unpack(no)) end

if moves then grants.end_holds_through(pool, now) end
if now then quotas.update_reserved_sums(pool, quotas.parent(pool, now), now.reserved, -1) end
quotas.update_reserved_sums(pool, parent, wanted.reserved, 1)
local key = keys.group(args.pool, args.group)
quotas.write(key, now, wanted, settings)
redis.call('HSET', key, 'weight', args.weight)
if args.parent ~= '' then redis.call('HSET', key, 'parent', args.parent) else redis.call('HDEL', key, 'parent') end
if not now then quotas.number_account(pool, key) end
redis.call('SADD', keys.pool_groups(args.pool), args.group)
local created = now and 0 or 1
operation_replies.save(args.op, created)
rechecks.start(pool)
return reply.set(created, unfinished_work.resume(tonumber(args.chunk)))
