-- Taking in one ask: the same request again, or granted at once, or queued in every eligible pool, or rejected.
-- @use accounts amounts clock dirty_pools eligibility grants lane_grants lanes parking queue queue_order requests
-- @keys meta requests idempotency request leases

-- The request an idempotency key, or a repeated call, already made: tag and request; nil if this ask is new.
local function again(spec, request)
  local before = spec.key and redis.call('GET', keys.idempotency(spec.key))
  if before then
    local id, digest = string.match(before, '^(%S+) (%S+)$')
    if string.find(id, '/', 1, true) then return 'conflict' end  -- it is a task's
    local known = requests.load(id)
    if known then return digest == spec.digest and 'known' or 'conflict', known end
  end
  local taken = redis.call('HMGET', keys.request(spec.id), 'component', 'resources')
  if not taken[1] then return nil end
  local same = taken[1] == request.component and taken[2] == request.resources
  return same and 'known' or 'taken', requests.load(spec.id)
end

-- Into the lane, and into the queue of each pool with what keeps it there.
local function wait(request, lane, inner, chances)
  local deadline = requests.poll_timeout_s(request) and clock.after(request.queue_ttl_s) or const.EXACT
  for _, chance in ipairs(chances) do queue.schedule_sync_if_stale(chance.path, lane) end
  queue.enter(request, lane, inner, deadline)
  for _, chance in ipairs(chances) do
    queue.enter_pool(chance.path, request, lane, inner, chance.constraint, chance.need)
  end
end

-- One that held units and has lost them stands in the queue of every pool that may grant it; the next pass looks at it first.
function admission.requeue(request, lane, fields)
  local inner, chances = queue_order.lane_score(tonumber(request.class), tonumber(request.seq)), {}
  for _, name in ipairs(lanes.pools(lane.component)) do
    local path = accounts.path(name, lane.component)
    if not eligibility.refusal(path, lane.units, lane.fixed) then
      chances[#chances + 1] = {path = path, constraint = parking.NEW, need = 0}
    end
  end
  if #chances == 0 then
    return requests.finish(request, states.rejected, 'rejected', eligibility.refusals(lane.component, lane.units, lane.fixed), fields)
  end
  wait(request, lane, inner, chances)
  for _, chance in ipairs(chances) do dirty_pools.mark_new(chance.path[#chance.path]) end
end

-- In the eligible pools, by policy priority: granted by the first that can, else waiting in all.
local function place(request, lane, fields)
  local inner, chances, pools = queue_order.lane_score(tonumber(request.class), tonumber(request.seq)), {}, lanes.pools(lane.component)
  for _, name in ipairs(pools) do
    local path = accounts.path(name, lane.component)
    if not eligibility.refusal(path, lane.units, lane.fixed) then
      local constraint, need = lane_grants.find_blocker(path, lane, inner, request.walltime_s)
      if not constraint then return grants.allocate(path, lane, request, fields) end
      chances[#chances + 1] = {path = path, constraint = constraint, need = need}
    end
  end
  if #chances > 0 then return wait(request, lane, inner, chances) end
  if #pools == 0 and redis.call('HGET', keys.meta(), 'unmanaged') == 'allow' then
    return grants.allocate(nil, lane, request, fields)
  end
  requests.finish(request, states.rejected, 'rejected', eligibility.refusals(lane.component, lane.units, lane.fixed), fields)
end

-- One that comes after another of the same task, with its place among equals; the next pass looks at it first.
function admission.enter_successor(spec, seq, submitted_ms)
  local request, fields = {id = spec.id}, spec.fields
  for i = 1, #fields, 2 do request[fields[i]] = fields[i + 1] end
  local number = amounts.format(redis.call('HINCRBY', keys.meta(), 'seq', 1))
  requests.transition(request, states.queued, 'submitted', {'seq', seq, 'submitted_ms', submitted_ms, 'queued_ms', amounts.format(clock.now)}, fields)
  local lane = lanes.of(request)
  if #lanes.pools(lane.component) == 0 and redis.call('HGET', keys.meta(), 'unmanaged') == 'allow' then
    grants.allocate(nil, lane, request, fields)
  else
    admission.requeue(request, lane, fields)
  end
  requests.save(request, fields)
  redis.call('ZADD', keys.requests(), number, spec.id)
end

-- Tag and a flat list: of a known request all there is, of a new one what the ask did not say already.
function admission.admit(spec, remember_s)
  local request, fields, said = {id = spec.id}, spec.fields, #spec.fields
  for i = 1, #fields, 2 do request[fields[i]] = fields[i + 1] end
  local tag, known = again(spec, request)
  if tag and not known then return tag, {} end
  if tag then
    local flat = requests.flat(known)
    flat[#flat + 1] = 'lapses'
    flat[#flat + 1] = known.lease_s and redis.call('ZSCORE', keys.leases(), known.id) or ''
    return tag, flat
  end
  local seq = amounts.format(redis.call('HINCRBY', keys.meta(), 'seq', 1))
  requests.transition(request, states.queued, 'submitted', {'seq', seq, 'submitted_ms', amounts.format(clock.now)}, fields)
  place(request, lanes.of(request), fields)
  requests.save(request, fields)
  redis.call('ZADD', keys.requests(), seq, spec.id)
  if spec.key then redis.call('SET', keys.idempotency(spec.key), spec.id .. ' ' .. spec.digest, 'EX', remember_s) end
  return 'taken_in', {unpack(fields, said + 1)}
end
