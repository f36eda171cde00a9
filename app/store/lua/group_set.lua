-- Make a group between a pool and its policies, or replace its numbers and parent.
-- @use accounts amounts clock grants promises requests reviews rounds
-- @keys group pool_groups
-- @args now kept chunk pool group parent reserved limit weight
-- @reply set created more
-- @reply refused code account key wants bound
-- @reply not_found what

local DEEPEST = 8

clock.start(args.now)
requests.keep(args.kept)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found('pool') end
local parent = args.parent == '' and pool or accounts.group(args.pool, args.parent)
if not parent then return reply.not_found('group') end

local now, depth, above = accounts.group(args.pool, args.group), 1, parent
while above ~= pool do
  depth = depth + 1
  if above.id == 'group:' .. args.group then return reply.refused('circle', above.id, '-', '0', '0') end
  if depth > DEEPEST then return reply.refused('too_deep', above.id, '-', amounts.whole(depth), amounts.whole(DEEPEST)) end
  above = promises.parent(pool, above)
end
local wanted = {reserved = amounts.decode(args.reserved).of, limit = amounts.decode(args.limit).of}
local moves = now and promises.parent(pool, now) ~= parent
if moves and promises.in_use(now) then return reply.refused('moves_in_use', now.id, '-', '0', '0') end
local no = promises.refusal(pool, parent, now, 'group:' .. args.group, wanted)
if no then return reply.refused(unpack(no)) end

if moves and pool.is.patience then grants.end_hold(pool) end
if now then promises.book(pool, promises.parent(pool, now), now.reserved, -1) end
promises.book(pool, parent, wanted.reserved, 1)
local key = keys.group(args.pool, args.group)
promises.write(key, now, wanted)
redis.call('HSET', key, 'weight', args.weight)
if args.parent ~= '' then redis.call('HSET', key, 'parent', args.parent) else redis.call('HDEL', key, 'parent') end
redis.call('SADD', keys.pool_groups(args.pool), args.group)
reviews.begin(pool)
return reply.set(now and 0 or 1, rounds.advance(tonumber(args.chunk)))
