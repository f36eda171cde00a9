-- The status of a waiter in each pool that has it in its queue: its position, the constraint that blocks it, and every
-- shortfall.
-- @use accounts amounts hold_owners lanes parking_lookup patience_hold queue_order queue_positions victim_holds
-- @reads pool_queue

-- Return rows by account and key: limit (empty for none), reserved, used, used non-preemptible, units of holds that count for the lane.
local function account_rows(path, lane, bound)
  local pool, rows = path[#path], {}
  for _, account in ipairs(path) do
    for _, key in ipairs(lane.units.keys) do
      local limit = pool.limit[key] and accounts.limit(account, pool, key)
      rows[#rows + 1] = {account.id, key, limit and amounts.format(limit) or '', amounts.format(account.reserved[key] or 0),
        amounts.format(account.used[key] or 0), amounts.format(account.fixed[key] or 0),
        amounts.format((account.victim_held[key] or 0) + (bound and account.patience_held[key] or 0))}
    end
  end
  return rows
end

-- Return the state of the waiter in a pool: it owns a hold in this pool or in another one, or it is behind the head of a strict
-- queue.
local function find_state(pool, request, queue_score)
  if victim_holds.find(pool, request.id) then return 'owner', '' end
  if (request.victim_hold_pool or '') ~= '' then return 'elsewhere', request.victim_hold_pool end
  if pool.fields.reviewing or pool.fields.unsettled then return 'settling', '' end
  local head_lane, head_score = parking_lookup.line_head(pool)
  if pool.fields.queueing == 'strict' and head_lane and head_score < queue_score then
    return 'line', (lanes.head(lanes.open(head_lane)))
  end
  if pool.fields.patience == request.id then return 'patient', '' end
  return '', ''
end

-- Return a row for each pool, the preferred first; none unless the request is queued.
function queue_status.rows(request)
  local rows = {}
  if request.status ~= states.queued then return rows end
  local lane = lanes.of(request)
  local lane_score = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
  for _, name in ipairs(lanes.pools(lane)) do
    local pool = accounts.pool(name)
    local position = queue_positions.find(pool, lane, request.id)
    if position then
      local path, shortfalls = accounts.path(name, lane.component), {}
      local queue_score, owner = queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane)), patience_hold.owner(pool)
      local bound = owner and owner.request.id ~= request.id and queue_score > owner.queue_score
      local usage = hold_owners.without_hold(victim_holds.find(pool, request.id), path, lane, function()
        accounts.blocker(path, lane.units, lane.fixed, bound, shortfalls)
        return account_rows(path, lane, bound)
      end)
      local state, other_request = find_state(pool, request, queue_score)
      local waiter = {request.id, lane.id, request.class, request.seq, request.preemption_group or '', request.preempted_fence or '', amounts.format(queue_score)}
      rows[#rows + 1] = {name, amounts.format(position), amounts.format(redis.call('ZCARD', keys.pool_queue(name))), state, other_request or '',
        bound and owner.request.id or '', pool.fields.queueing == 'strict' and '1' or '0', shortfalls, usage,
        pool.fields.rules or '0', waiter}
    end
  end
  return rows
end
