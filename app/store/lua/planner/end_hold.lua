-- End a hold with victims that nothing can fill any more; who still leaves for it waits to be judged.
-- @use accounts clearings clock grants passes requests shortages
-- @args now kept chunk pool owner
-- @reply applied more
-- @reply stale why

clock.start(args.now)
requests.keep(args.kept)
local pool = accounts.pool(args.pool)
local hold, at = nil, nil
if pool then hold, at = clearings.find(pool, args.owner) end
if not hold then return reply.stale('hold') end
local leaving = shortages.leaving(pool)
if not leaving then return reply.stale('unjudged') end
if shortages.fits(shortages.rooms(hold.path, hold.lane, at, leaving)) then return reply.stale('enough') end

grants.end_clearing(pool, hold)
return reply.applied(passes.settle(tonumber(args.chunk)))
