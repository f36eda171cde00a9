-- Read the demand of the pool's policies, beginning with one of its lanes: the rest of a snapshot.
-- @use accounts policy_demand
-- @args pool after count
-- @reply read rows next_page
-- @reply not_found

local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
return reply.read(policy_demand.read(pool, tonumber(args.after), tonumber(args.count)))
