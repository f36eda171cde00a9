-- Let an orphaned victim leave for the owner of another hold, or reprieve it. A victim that leaves because of a limit can be reprieved,
-- too.
-- @use accounts amounts clock grant_loop lanes preemptions requests victim_holds victims
-- @reads pool_victims
-- @writes preemption_deadlines
-- @args now events_kept chunk pool id fence owner
-- @reply applied more
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool, request = accounts.pool(args.pool), requests.load(args.id)
local is_victim = pool and request and request.status == states.preempting and request.fence == args.fence and request.pool == args.pool
local victim_of = is_victim and redis.call('HGET', keys.pool_victims(args.pool), args.id)
if not (victim_of == '-' or victim_of == '!' and args.owner == '') then return reply.stale('victim') end
if args.owner == '' then
  preemptions.reprieve(request)
  return reply.applied(grant_loop.settle(tonumber(args.chunk)))
end

local hold = victim_holds.find(pool, args.owner)
if not hold then return reply.stale('hold') end
local lane = lanes.of(request)
local path = accounts.path(args.pool, lane.component)
local paused_ms = math.max(0, clock.now - (tonumber(request.orphaned_ms) or clock.now))
local deadline = amounts.format(tonumber(request.deadline_ms) + paused_ms)
victims.set_owner(pool, args.id, args.owner)
redis.call('ZADD', keys.preemption_deadlines(), deadline, args.id)
victim_holds.update_expected(pool, hold, path, lane.units, 1)
local owner = requests.load(args.owner)
local rank = preemptions.rank(path[1], request)
requests.add_event(request, 'passed_on', {'preempted_by', args.owner, 'by_origin', victims.origin_of(owner), 'deadline_ms', deadline}, {rank = rank, by_rank = preemptions.rank(hold.path[1], owner)})
requests.add_event(owner, 'clearing', {}, {by = '', pool = args.pool, rank = preemptions.rank(hold.path[1], owner), victims = args.id .. '@' .. rank, reason = request.reason})
return reply.applied(grant_loop.settle(tonumber(args.chunk)))
