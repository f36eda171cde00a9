-- Make this server the master of the workspace: store its id and raise the fence by a jump. An earlier master may have granted
-- requests under fences that were never replicated, and no fence may be given out twice. The jump depends on the id, so that two servers
-- with the same data do not jump to the same fence. A new workspace on a server that was never promoted needs no jump.
-- `stored` is the id that the caller has seen; another process may have adopted this server since. A deposed server is not adopted before
-- its mark has lapsed.
-- @use amounts clock
-- @writes meta
-- @args now stored master
-- @reply adopted
-- @reply changed
-- @reply deposed

clock.start(args.now)
local stored = redis.call('HGET', keys.meta(), 'master') or ''
if stored ~= args.stored or stored == args.master then return reply.changed() end
local deposed_id, until_ms = string.match(stored, '^deposed (%S+) (%d+)$')
if deposed_id == args.master and clock.now < tonumber(until_ms) then return reply.deposed() end

local was_promoted = string.find(args.master, '-promoted', 1, true) ~= nil
if was_promoted or redis.call('HEXISTS', keys.meta(), 'fence') == 1 then
  local jump = const.FENCE_JUMP + tonumber(string.sub(args.master, 1, 7), 16)
  redis.call('HINCRBY', keys.meta(), 'fence', amounts.format(jump))
end
redis.call('HSET', keys.meta(), 'master', args.master)
return reply.adopted()
