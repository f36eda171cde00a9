-- Admit a request: queue it in every eligible pool. No limit refuses a request that returns to the queue; `submissions` admits new ones.
-- @use accounts amounts bodies clock dirty_pools eligibility grants lanes limits parking queue queue_order rechecks requests template_matches templates
-- @writes meta requests

-- Return a request with the fields of its spec.
function admission.read_spec(spec)
  local request, fields = {id = spec.id}, spec.fields
  for i = 1, #fields, 2 do request[fields[i]] = fields[i + 1] end
  return request
end

-- Return the component as a subject, and store the subject in the request, if the component has limits of its own; else return
-- nil.
function admission.limit_by_component(request, fields, component_limits)
  local subject = limits.component_subject(request.component, component_limits)
  if not subject then return nil end
  requests.set(request, fields, 'limited_by', (request.limited_by and request.limited_by .. ' ' or '') .. subject.name)
  return subject
end

-- Return the pools in which a request may be granted or wait. `template_count`: the number of templates of the workspace.
function admission.pools(lane, template_count)
  if (tonumber(template_count or 0)) > 0 then return lanes.allowed(lane, template_matches.pools(lane.component)) end
  return lanes.pools(lane)
end

-- Return the path of a lane in a pool if it is eligible there; else nil, and the refusal if the only reason is a full template.
function admission.eligible_path(pool_name, lane)
  local path = accounts.path(pool_name, lane.component)
  if eligibility.refusal(path, lane) then return nil end
  local refusal = path[1].is_planned and templates.refusal(path)
  if refusal then return nil, refusal end
  return path
end

-- True if a lane is eligible in no pool, and in one of the pools only because a template is full.
function admission.has_full_templates(lane)
  local template_count, refusal = redis.call('HGET', keys.meta(), 'templates'), nil
  if tonumber(template_count or 0) == 0 then return false end
  for _, name in ipairs(admission.pools(lane, template_count)) do
    local path, template_refusal = admission.eligible_path(name, lane)
    if path then return false end
    refusal = refusal or template_refusal
  end
  return refusal ~= nil
end

-- Put a request into its lane, and into the queue of each pool with the constraint that blocks it there.
function admission.enqueue(request, lane, lane_score, candidates)
  local deadline = requests.queue_ttl_s(request) and clock.after(request.queue_ttl_s) or const.MAX_AMOUNT
  local new_pools = {}
  for _, candidate in ipairs(candidates) do
    if candidate.path[1].is_planned and lanes.has_waiters(lane.component) then new_pools[#new_pools + 1] = candidate.path[#candidate.path] end
    if candidate.path[1].is_planned then templates.write(candidate.path) end
    queue.schedule_sync_if_stale(candidate.path, lane)
  end
  queue.enter(request, lane, lane_score, deadline)
  for _, candidate in ipairs(candidates) do
    queue.enter_pool(candidate.path, request, lane, lane_score, candidate.constraint, candidate.need)
  end
  for _, pool in ipairs(new_pools) do rechecks.start(pool) end  -- now earlier waiters of the component wait in these pools, too
end

-- Put a request that lost its units back into the queue of every eligible pool. The next pass decides about it, not this call.
function admission.requeue(request, lane, fields)
  local lane_score, candidates = queue_order.lane_score(tonumber(request.class), tonumber(request.seq)), {}
  local pools = admission.pools(lane, redis.call('HGET', keys.meta(), 'templates'))
  for _, name in ipairs(pools) do
    local path = admission.eligible_path(name, lane)
    if path then candidates[#candidates + 1] = {path = path, constraint = parking.NEW, need = 0} end
  end
  if #candidates == 0 then
    return requests.finish(request, states.rejected, 'rejected', eligibility.refusals(lane, pools), fields)
  end
  admission.enqueue(request, lane, lane_score, candidates)
  for _, candidate in ipairs(candidates) do dirty_pools.mark_new(candidate.path[#candidate.path]) end
end

-- Queue the next request of a task under the submission number of its predecessor. The next pass decides about it. No limit
-- refuses it.
function admission.enter_successor(spec, seq, submitted_ms)
  local request, fields = admission.read_spec(spec), spec.fields
  admission.limit_by_component(request, fields, redis.call('HGET', keys.meta(), 'component:' .. request.component))
  bodies.save(request.bytes)
  local number = amounts.format(redis.call('HINCRBY', keys.meta(), 'seq', 1))
  requests.transition(request, states.queued, 'submitted', {'seq', seq, 'submitted_ms', submitted_ms, 'queued_ms', amounts.format(clock.now)}, fields)
  local lane = lanes.of(request)
  local template_count = redis.call('HGET', keys.meta(), 'templates')
  if lanes.is_unmanaged(lane, admission.pools(lane, template_count)) then
    grants.allocate(nil, lane, request, fields)
  else
    admission.requeue(request, lane, fields)
  end
  requests.save(request, fields)
  redis.call('ZADD', keys.requests(), number, spec.id)
end
