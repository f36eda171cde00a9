-- Compare a range of a sorted set of requests with the requests: each request exists, and its state belongs in the set.
-- @use audit_findings lanes requests
-- @writes ended lane lane_walltimes leases pool_allocations pool_queue pool_walltime_ends preemption_deadlines rejected
-- @writes requests waiting
-- @args kind part cursor count repair
-- @reply audited differences cursor

audit_findings.start(args.repair)

local function is_queued(request) return request.status == states.queued end
local function is_ended(request) return not string.find(transitions, ' ' .. request.status .. '>', 1, true) end
local function is_allocation(request) return not is_queued(request) and not is_ended(request) end
local function is_in_lane(request) return is_queued(request) and lanes.of(request).id == args.part end
local function is_allocated_here(request) return is_allocation(request) and request.pool == args.part end

local key, belongs = unpack(({
  requests = {keys.requests(), function() return true end},
  waiting = {keys.waiting(), is_queued},
  leases = {keys.leases(), is_allocation},
  ended = {keys.ended(), is_ended},
  rejected = {keys.rejected(), function(request) return request.status == states.rejected end},
  preemption_deadlines = {keys.preemption_deadlines(), function(request) return request.status == states.preempting end},
  lane = {keys.lane(args.part), is_in_lane},
  lane_walltimes = {keys.lane_walltimes(args.part), is_in_lane},
  pool_queue = {keys.pool_queue(args.part), is_queued},
  pool_allocations = {keys.pool_allocations(args.part), is_allocated_here},
  pool_walltime_ends = {keys.pool_walltime_ends(args.part), is_allocated_here},
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
