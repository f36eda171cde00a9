-- Why one request waits: in each pool in whose queue it stands its place there, all that it lacks, and what binds it.
-- @use accounts amounts clock hold_owners lanes parking_lookup patience_hold queue_order queue_positions requests victim_holds
-- @keys events leases pool_queue
-- @args now id
-- @reply found request lapses pools
-- @reply not_found

clock.start(args.now)
local request = requests.load(args.id)
if not request then return reply.not_found() end

-- By account of the path and key: limit (empty where there is none), reserved, used, used and not preemptible, kept for others.
local function rows(path, lane, bound)
  local pool, all = path[#path], {}
  for _, account in ipairs(path) do
    for _, key in ipairs(lane.units.keys) do
      local limit = pool.limit[key] and accounts.limit(account, pool, key)
      all[#all + 1] = {account.id, key, limit and amounts.format(limit) or '', amounts.format(account.reserved[key] or 0),
        amounts.format(account.used[key] or 0), amounts.format(account.fixed[key] or 0),
        amounts.format((account.victim_held[key] or 0) + (bound and account.patience_held[key] or 0))}
    end
  end
  return all
end

-- What it is besides: the owner of a hold, one whose way is cleared in another pool, or behind the first of a strict line.
local function stands(pool, place)
  if victim_holds.find(pool, args.id) then return 'owner', '' end
  if (request.victim_hold_pool or '') ~= '' then return 'elsewhere', request.victim_hold_pool end
  if pool.fields.reviewing or pool.fields.unsettled then return 'settling', '' end
  local front, at = parking_lookup.line_head(pool)
  if pool.fields.queueing == 'strict' and front and at < place then
    return 'line', (lanes.head(lanes.open(front)))
  end
  if pool.fields.patience == args.id then return 'patient', '' end
  return '', ''
end

local newest = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
local event = newest[1] and newest[1][1] or '0-0'

local pools = {}
if request.status == states.queued then
  local lane = lanes.of(request)
  local inner = queue_order.lane_score(tonumber(request.class), tonumber(request.seq))
  for _, name in ipairs(lanes.pools(lane.component)) do
    local pool = accounts.pool(name)
    local position = queue_positions.find(pool, lane, args.id)
    if position then
      local path, lacks = accounts.path(name, lane.component), {}
      local place, owner = queue_order.queue_score(pool, path[1], inner, lanes.is_in_share(path, lane)), patience_hold.owner(pool)
      local bound = owner and owner.request.id ~= args.id and place > owner.place
      local seen = hold_owners.without_hold(victim_holds.find(pool, args.id), path, lane, function()
        accounts.blocker(path, lane.units, lane.fixed, bound, lacks)
        return rows(path, lane, bound)
      end)
      local state, who = stands(pool, place)
      local asker = {args.id, lane.id, request.class, request.seq, request.preemption_group or '', request.preempted_fence or '', amounts.format(place)}
      pools[#pools + 1] = {name, amounts.format(position), amounts.format(redis.call('ZCARD', keys.pool_queue(name))), state, who or '',
        bound and owner.request.id or '', pool.fields.queueing == 'strict' and '1' or '0', lacks, seen,
        event, pool.fields.rules or '0', asker}
    end
  end
end
return reply.found(requests.flat(request), request.lease_s and redis.call('ZSCORE', keys.leases(), args.id), pools)
