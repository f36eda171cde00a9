-- Explain why a request waits: in each pool its position, its blocking constraints and all that it lacks.
-- @use accounts amounts clock hold_owners lanes leases parking_lookup patience_hold polls queue_order queue_positions requests victim_holds
-- @reads events pool_queue
-- @args now id
-- @reply found request lapses pools
-- @reply not_found

clock.start(args.now)
local request = requests.load(args.id)
if not request then return reply.not_found() end

-- Return by account and key: limit (empty for none), reserved, used, used non-preemptible, units of holds that count here.
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

-- Return the state of the waiter in a pool: it owns a hold here or elsewhere, or is behind the head of a strict line.
local function find_state(pool, queue_score)
  if victim_holds.find(pool, args.id) then return 'owner', '' end
  if (request.victim_hold_pool or '') ~= '' then return 'elsewhere', request.victim_hold_pool end
  if pool.fields.reviewing or pool.fields.unsettled then return 'settling', '' end
  local head_lane, head_score = parking_lookup.line_head(pool)
  if pool.fields.queueing == 'strict' and head_lane and head_score < queue_score then
    return 'line', (lanes.head(lanes.open(head_lane)))
  end
  if pool.fields.patience == args.id then return 'patient', '' end
  return '', ''
end

local newest_events = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
local event = newest_events[1] and newest_events[1][1] or '0-0'

local pools = {}
if request.status == states.queued then
  local lane = lanes.of(request)
  local lane_score = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
  for _, name in ipairs(lanes.pools(lane)) do
    local pool = accounts.pool(name)
    local position = queue_positions.find(pool, lane, args.id)
    if position then
      local path, shortfalls = accounts.path(name, lane.component), {}
      local queue_score, owner = queue_order.queue_score(pool, path[1], lane_score, lanes.is_in_share(path, lane)), patience_hold.owner(pool)
      local bound = owner and owner.request.id ~= args.id and queue_score > owner.queue_score
      local usage = hold_owners.without_hold(victim_holds.find(pool, args.id), path, lane, function()
        accounts.blocker(path, lane.units, lane.fixed, bound, shortfalls)
        return account_rows(path, lane, bound)
      end)
      local state, other_request = find_state(pool, queue_score)
      local waiter = {args.id, lane.id, request.class, request.seq, request.preemption_group or '', request.preempted_fence or '', amounts.format(queue_score)}
      pools[#pools + 1] = {name, amounts.format(position), amounts.format(redis.call('ZCARD', keys.pool_queue(name))), state, other_request or '',
        bound and owner.request.id or '', pool.fields.queueing == 'strict' and '1' or '0', shortfalls, usage,
        event, pool.fields.rules or '0', waiter}
    end
  end
end
return reply.found(polls.flat(request), leases.end_ms(request), pools)
