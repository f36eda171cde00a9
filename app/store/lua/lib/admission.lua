-- Admit a request: a repeated call gets the same request; a new one is granted, queued in every eligible pool, or rejected.
-- @use accounts amounts clock dirty_pools eligibility grants lane_grants lanes leases parking polls queue queue_order requests
-- @reads request
-- @writes idempotency meta requests

-- Return a tag and the request that this idempotency key, or this id, made before; nil if the spec is new.
local function find_duplicate(spec, request)
  local remembered = spec.key and redis.call('GET', keys.idempotency(spec.key))
  if remembered then
    local id, digest = string.match(remembered, '^(%S+) (%S+)$')
    if string.find(id, '/', 1, true) then return 'conflict' end  -- the key belongs to a task
    local existing = requests.load(id)
    if existing then return digest == spec.digest and 'known' or 'conflict', existing end
  end
  local existing_fields = redis.call('HMGET', keys.request(spec.id), 'component', 'resources')
  if not existing_fields[1] then return nil end
  local same = existing_fields[1] == request.component and existing_fields[2] == request.resources
  return same and 'known' or 'id_taken', requests.load(spec.id)
end

-- Put a request into its lane, and into the queue of each pool with the constraint that blocks it there.
local function enqueue(request, lane, lane_score, candidates)
  local deadline = requests.poll_timeout_s(request) and clock.after(request.queue_ttl_s) or const.MAX_AMOUNT
  for _, candidate in ipairs(candidates) do queue.schedule_sync_if_stale(candidate.path, lane) end
  queue.enter(request, lane, lane_score, deadline)
  for _, candidate in ipairs(candidates) do
    queue.enter_pool(candidate.path, request, lane, lane_score, candidate.constraint, candidate.need)
  end
end

-- Put a request that lost its units back into the queue of every eligible pool; the next pass judges it first.
function admission.requeue(request, lane, fields)
  local lane_score, candidates = queue_order.lane_score(tonumber(request.class), tonumber(request.seq)), {}
  for _, name in ipairs(lanes.pools(lane.component)) do
    local path = accounts.path(name, lane.component)
    if not eligibility.refusal(path, lane.units, lane.fixed) then
      candidates[#candidates + 1] = {path = path, constraint = parking.NEW, need = 0}
    end
  end
  if #candidates == 0 then
    return requests.finish(request, states.rejected, 'rejected', eligibility.refusals(lane.component, lane.units, lane.fixed), fields)
  end
  enqueue(request, lane, lane_score, candidates)
  for _, candidate in ipairs(candidates) do dirty_pools.mark_new(candidate.path[#candidate.path]) end
end

-- Grant the request in the first eligible pool that has room, by policy priority; else queue it in all of them.
local function grant_or_enqueue(request, lane, fields)
  local lane_score, candidates, pools = queue_order.lane_score(tonumber(request.class), tonumber(request.seq)), {}, lanes.pools(lane.component)
  for _, name in ipairs(pools) do
    local path = accounts.path(name, lane.component)
    if not eligibility.refusal(path, lane.units, lane.fixed) then
      local constraint, need = lane_grants.find_blocker(path, lane, lane_score, request.walltime_s)
      if not constraint then return grants.allocate(path, lane, request, fields) end
      candidates[#candidates + 1] = {path = path, constraint = constraint, need = need}
    end
  end
  if #candidates > 0 then return enqueue(request, lane, lane_score, candidates) end
  if #pools == 0 and redis.call('HGET', keys.meta(), 'unmanaged') == 'allow' then
    return grants.allocate(nil, lane, request, fields)
  end
  requests.finish(request, states.rejected, 'rejected', eligibility.refusals(lane.component, lane.units, lane.fixed), fields)
end

-- Queue the next request of a task under the submission number of its predecessor; the next pass judges it first.
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

-- Admit a request. Return a tag, a flat list and the request. The list has all fields of a known request, and of a new one those
-- that the spec did not have.
function admission.admit(spec, remember_s)
  local request, fields, spec_length = {id = spec.id}, spec.fields, #spec.fields
  for i = 1, #fields, 2 do request[fields[i]] = fields[i + 1] end
  local tag, existing = find_duplicate(spec, request)
  if tag and not existing then return tag, {} end
  if tag then
    local flat = polls.flat(existing)
    flat[#flat + 1] = 'lapses'
    flat[#flat + 1] = leases.end_ms(existing)
    return tag, flat, existing
  end
  local seq = amounts.format(redis.call('HINCRBY', keys.meta(), 'seq', 1))
  requests.transition(request, states.queued, 'submitted', {'seq', seq, 'submitted_ms', amounts.format(clock.now)}, fields)
  grant_or_enqueue(request, lanes.of(request), fields)
  requests.save(request, fields)
  redis.call('ZADD', keys.requests(), seq, spec.id)
  if spec.key then redis.call('SET', keys.idempotency(spec.key), spec.id .. ' ' .. spec.digest, 'EX', remember_s) end
  return 'admitted', {unpack(fields, spec_length + 1)}, request
end
