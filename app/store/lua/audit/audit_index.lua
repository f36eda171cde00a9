-- Compare a stretch of a sorted set of requests with the requests: each exists and is in a state that belongs here.
-- @use audit_findings lanes requests
-- @keys requests waiting leases preemption_deadlines ended lane lane_walltimes pool_queue pool_allocations pool_walltime_ends
-- @args kind part cursor count repair
-- @reply audited differences cursor

audit_findings.start(args.repair)

local function waits(request) return request.status == states.queued end
local function over(request) return not string.find(transitions, ' ' .. request.status .. '>', 1, true) end
local function holds_units(request) return not waits(request) and not over(request) end
local function shaped(request) return waits(request) and lanes.of(request).id == args.part end
local function holds_here(request) return holds_units(request) and request.pool == args.part end

local key, belongs = unpack(({
  requests = {keys.requests(), function() return true end},
  waiting = {keys.waiting(), waits},
  leases = {keys.leases(), holds_units},
  ended = {keys.ended(), over},
  preemption_deadlines = {keys.preemption_deadlines(), function(request) return request.status == states.preempting end},
  lane = {keys.lane(args.part), shaped},
  lane_walltimes = {keys.lane_walltimes(args.part), shaped},
  pool_queue = {keys.pool_queue(args.part), waits},
  pool_allocations = {keys.pool_allocations(args.part), holds_here},
  pool_walltime_ends = {keys.pool_walltime_ends(args.part), holds_here},
})[args.kind])

local scanned = redis.call('ZSCAN', key, args.cursor, 'COUNT', args.count)
for i = 1, #scanned[2], 2 do
  local id = scanned[2][i]
  local request = requests.load(id)
  if not (request and belongs(request)) then
    if audit_findings.add('stray', key .. ' ' .. id, request and request.status or 'there, but no request', nil) then redis.call('ZREM', key, id) end
  end
end
return reply.audited(audit_findings.list(), scanned[1])
