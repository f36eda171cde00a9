-- Read the first waiters of some lanes of a pool: a part of a snapshot with `lane_count` lanes.
-- @use accounts snapshot_waiters
-- @args pool lanes lane_count most
-- @reply read waiters preferred
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
return reply.read(snapshot_waiters.read(pool, cjson.decode(args.lanes), tonumber(args.lane_count), tonumber(args.most)))
