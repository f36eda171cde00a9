-- Mark the workspace on a server that another one has replaced: no command writes to it until the mark lapses. The mark names the
-- id of the server. So it means nothing on a server with another id: a copy of it on the new master, or this server promoted anew.
-- @use amounts clock
-- @writes meta
-- @args now id lasts_ms master
-- @reply deposed
-- @reply other

clock.start(args.now)
if args.id ~= args.master then return reply.other() end
local until_ms = amounts.format(clock.now + tonumber(args.lasts_ms))
redis.call('HSET', keys.meta(), 'master', 'deposed ' .. args.master .. ' ' .. until_ms)
return reply.deposed()
