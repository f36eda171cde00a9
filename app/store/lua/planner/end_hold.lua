-- End a hold with victims that nothing can fill any more; who still leaves for it waits to be judged.
-- @use accounts clock grant_loop grants projected_shortage requests victim_holds
-- @args now events_kept chunk pool owner
-- @reply applied more
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.pool)
local hold, at = nil, nil
if pool then hold, at = victim_holds.find(pool, args.owner) end
if not hold then return reply.stale('hold') end
local leaving = projected_shortage.units_of_victims(pool)
if not leaving then return reply.stale('unjudged') end
if projected_shortage.fits(projected_shortage.rooms(hold.path, hold.lane, at, leaving)) then return reply.stale('enough') end

grants.end_victim_hold(pool, hold)
return reply.applied(grant_loop.settle(tonumber(args.chunk)))
