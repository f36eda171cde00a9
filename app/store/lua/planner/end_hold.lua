-- End a victim hold that can no longer be filled. Its victims are orphaned until the next reconcile.
-- @use accounts clock grant_loop grants projected_shortage requests victim_holds victims
-- @args now events_kept chunk pool owner
-- @reply applied more
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.pool)
local hold, index = nil, nil
if pool then hold, index = victim_holds.find(pool, args.owner) end
if not hold then return reply.stale('hold') end
if victims.has_orphans(pool) then return reply.stale('unjudged') end
if projected_shortage.fits(projected_shortage.rooms(hold.path, hold.lane, index)) then return reply.stale('enough') end

grants.end_victim_hold(pool, hold)
return reply.applied(grant_loop.settle(tonumber(args.chunk)))
