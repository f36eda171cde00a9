-- Queue copied waiters (id, lane, end of the queue TTL) in their pools in a workspace copy. `lanes` are their lanes, each with the pools that
-- it is attached to: pool, constraint, need, time (ms) of blocking. A lane that is attached to no pool and is not being rechecked fits no
-- pool: the unfinished work rejects its waiters.
-- @use accounts clock lanes queue queue_order requests
-- @args waiters lanes
-- @reply rebuilt

local attached = {}
for _, row in ipairs(cjson.decode(args.lanes)) do attached[row[1]] = row[2] end

local function is_rechecked(lane)
  for _, name in ipairs(lanes.pools(lane)) do
    if accounts.pool(name).fields.reviewing then return true end
  end
end

for _, row in ipairs(cjson.decode(args.waiters)) do
  local id, lane_id, deadline = unpack(row)
  local request, lane = requests.load(id), lanes.open(lane_id)
  local lane_score = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
  queue.enter(request, lane, lane_score, tonumber(deadline))
  for _, place in ipairs(attached[lane_id]) do
    local name, constraint, need, since = unpack(place)
    clock.start(since)
    queue.enter_pool(accounts.path(name, lane.component), request, lane, lane_score, constraint, tonumber(need))
  end
  if #attached[lane_id] == 0 and not is_rechecked(lane) then queue.reject_lane(lane) end
end
return reply.rebuilt()
