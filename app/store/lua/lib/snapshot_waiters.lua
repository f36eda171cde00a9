-- The waiters of a snapshot: of each lane the first of every class.
-- @use accounts amounts lanes parking queue_order
-- @reads lane request

local OF_A_CLASS = 8  -- the most waiters per lane and class: a decision about one holds for the others

-- Return the row of a waiter, and the pool of its victim hold; nil if the request is gone.
function snapshot_waiters.row(pool, lane, id)
  local fields = redis.call('HMGET', keys.request(id), 'class', 'seq', 'preemption_group', 'preempted_fence', 'victim_hold_pool')
  local path = fields[1] and accounts.path(pool.name, lane.component)
  if not path then return nil end
  local lane_score = queue_order.lane_score(tonumber(fields[1]), tonumber(fields[2]))
  return {id, lane.id, fields[1], fields[2], fields[3] or '', fields[4] or '',
    amounts.format(queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane)))}, fields[5]
end

-- Add the first waiters of each class of a lane, without owners of holds.
local function add_lane(pool, lane, per_class, most, into)
  local from, class, class_count = '-inf', nil, 0
  while #into < most do
    local ids = redis.call('ZRANGEBYSCORE', keys.lane(lane.id), from, '+inf', 'WITHSCORES', 'LIMIT', 0, OF_A_CLASS)
    if #ids == 0 then return end
    for i = 1, #ids, 2 do
      local lane_class = math.floor(tonumber(ids[i + 1]) / const.MAX_SUBMISSIONS)
      if lane_class ~= class then class, class_count = lane_class, 0 end
      local row, hold_pool = nil, nil
      if class_count < per_class and #into < most then row, hold_pool = snapshot_waiters.row(pool, lane, ids[i]) end
      if row and (hold_pool or '') == '' then
        into[#into + 1] = row
        class_count = class_count + 1
      end
    end
    from = class_count < per_class and '(' .. ids[#ids] or amounts.format((class + 1) * const.MAX_SUBMISSIONS)
  end
end

-- Return up to `most` waiters of these lanes, and of each component the pools that it prefers to this one. Of each lane and class
-- there are fewer where there are many lanes: `lane_count` in the whole snapshot.
function snapshot_waiters.read(pool, lane_ids, lane_count, most)
  local per_class = math.max(1, math.min(OF_A_CLASS, math.floor(most / math.max(1, lane_count))))
  local waiters, lanes_by_component, preferred = {}, {}, {}
  for _, id in ipairs(lane_ids) do
    local lane, constraint = lanes.open(id), parking.find(pool, id)
    if #waiters < most and constraint and not string.match(constraint, '^fixed|') then
      add_lane(pool, lane, per_class, most, waiters)
      lanes_by_component[lane.component] = lane
    end
  end
  for component, lane in pairs(lanes_by_component) do
    local row = {component}
    for _, name in ipairs(lanes.component_pools(lane)) do
      if name == pool.name then break end
      row[#row + 1] = name
    end
    preferred[#preferred + 1] = row
  end
  return waiters, preferred
end
