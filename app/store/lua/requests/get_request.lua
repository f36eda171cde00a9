-- Read a request with its positions in the queues; with `poll` it counts as polled.
-- @use accounts amounts clock lanes queue_positions requests
-- @keys leases waiting
-- @args now id poll
-- @reply found request lapses places
-- @reply not_found

clock.start(args.now)
local request = requests.load(args.id)
if not request then return reply.not_found() end

local positions = {}
if request.status == states.queued then
  local lane = lanes.of(request)
  for _, name in ipairs(lanes.pools(lane.component)) do
    local position = queue_positions.find(accounts.pool(name), lane, args.id)
    if position then
      positions[#positions + 1] = name
      positions[#positions + 1] = amounts.format(position)
    end
  end
  if args.poll == '1' and requests.poll_timeout_s(request) then
    redis.call('ZADD', keys.waiting(), 'XX', amounts.format(clock.after(request.queue_ttl_s)), args.id)
  end
end
local lease_end_ms = request.lease_s and redis.call('ZSCORE', keys.leases(), args.id)
return reply.found(requests.flat(request), lease_end_ms, positions)
