-- Mark the workspace on a server that is no longer the master: no command writes to it until the mark lapses. The mark names the id of
-- the server, so it has no effect under another id: after replication to the new master, or when this server is promoted again.
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
