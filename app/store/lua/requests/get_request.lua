-- One request as it stands, with its places in the queues; a look by its owner counts as a poll.
-- @use accounts amounts clock lanes queue_positions requests
-- @keys leases waiting
-- @args now id poll
-- @reply found request lapses places
-- @reply not_found

clock.start(args.now)
local request = requests.load(args.id)
if not request then return reply.not_found() end

local places = {}
if request.status == states.queued then
  local lane = lanes.of(request)
  for _, name in ipairs(lanes.pools(lane.component)) do
    local position = queue_positions.find(accounts.pool(name), lane, args.id)
    if position then
      places[#places + 1] = name
      places[#places + 1] = amounts.format(position)
    end
  end
  if args.poll == '1' and requests.poll_timeout_s(request) then
    redis.call('ZADD', keys.waiting(), 'XX', amounts.format(clock.after(request.queue_ttl_s)), args.id)
  end
end
local lapses = request.lease_s and redis.call('ZSCORE', keys.leases(), args.id)
return reply.found(requests.flat(request), lapses, places)
