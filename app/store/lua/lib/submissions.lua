-- New requests. A repeated call gets the same request. A new request is granted, queued in every eligible pool, or rejected. A request
-- beyond a limit is refused, and nothing of it is kept.
-- @use admission amounts clock eligibility grants lane_grants lanes leases limits polls queue_order requests templates
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

-- Judge a new request: the path on which it can be granted now, by policy priority, or the pools in which it would wait.
-- `refusal`: that of the first template without room for a further policy.
local function judge(request, lane, lane_score, pools)
  local candidates, refusal = {}, nil
  for _, name in ipairs(pools) do
    local path, template_refusal = admission.eligible_path(name, lane)
    refusal = refusal or template_refusal
    if path then
      local constraint, need = lane_grants.find_blocker(path, lane, lane_score, request.walltime_s)
      if not constraint then return path, candidates end
      candidates[#candidates + 1] = {path = path, constraint = constraint, need = need}
    end
  end
  return nil, candidates, refusal
end

-- Prepare an admission without a write: `tag` and perhaps `request` of a repeated call, `refusal` of a limit, or all that is
-- decided. `spec.is_exempt` if no limit refuses it, `spec.is_delayed` if it waits for its time.
function submissions.prepare(spec)
  local request = admission.read_spec(spec)
  local tag, existing = find_duplicate(spec, request)
  if tag then return {tag = tag, request = existing} end
  local seq, fence, saved, deleted, max_running, max_bytes, component_limits, template_count = unpack(limits.read_workspace(request.component))
  seq, saved = tonumber(seq or 0) + 1, tonumber(saved or 0)
  local bytes = request.bytes + (spec.message_bytes or 0)
  local refusal = not spec.is_exempt and limits.admission_refusal(saved, tonumber(deleted or 0), bytes, max_running, max_bytes) or nil
  if refusal then return {refusal = refusal} end
  local own, lane = admission.limit_by_component(request, spec.fields, component_limits), lanes.of(request)
  local lane_score = queue_order.lane_score(tonumber(request.class), seq)
  local pools = admission.pools(lane, template_count)
  local path, candidates, template_refusal = judge(request, lane, lane_score, pools)
  if not spec.is_exempt and not spec.is_delayed and not path and #candidates == 0 then refusal = template_refusal end
  if not spec.is_exempt and (spec.is_delayed or not path and #candidates > 0) then
    refusal = limits.wait_refusal(lane, spec.limits and {spec.limits, own} or {own})
  end
  return {
    refusal = refusal, request = request, lane = lane, lane_score = lane_score, path = path, candidates = candidates, pools = pools,
    is_granted = path or lanes.is_unmanaged(lane, pools),
    seq = amounts.format(seq), fence = amounts.format(tonumber(fence or 0) + 1), saved_bytes = amounts.format(saved + bytes),
  }
end

-- Admit a prepared request. Return a tag, a flat list and the request. The list has all fields of a known request; of a new request it
-- has only the fields that are not in the spec.
function submissions.admit(plan, spec, remember_s)
  if plan.refusal then return 'limited', plan.refusal end
  local request, lane, fields, spec_length = plan.request, plan.lane, spec.fields, #spec.fields
  if plan.tag then
    local flat = request and polls.flat(request) or {}
    if request then requests.set_all(flat, {'lapses'}, leases.end_ms(request)) end
    return plan.tag, flat, request
  end
  if plan.is_granted then redis.call('HSET', keys.meta(), 'seq', plan.seq, 'saved_bytes', plan.saved_bytes, 'fence', plan.fence)
  else redis.call('HSET', keys.meta(), 'seq', plan.seq, 'saved_bytes', plan.saved_bytes) end
  local changes = {'seq', plan.seq, 'submitted_ms', amounts.format(clock.now)}
  requests.transition(request, states.queued, 'submitted', changes, fields, nil, plan.is_granted)
  if plan.path and plan.path[1].is_planned then templates.write(plan.path) end
  if plan.is_granted then grants.allocate(plan.path, lane, request, fields, plan.fence)
  elseif #plan.candidates > 0 then admission.enqueue(request, lane, plan.lane_score, plan.candidates)
  else requests.finish(request, states.rejected, 'rejected', eligibility.refusals(lane, plan.pools), fields) end
  requests.save(request, fields)
  redis.call('ZADD', keys.requests(), plan.seq, spec.id)
  if spec.key then redis.call('SET', keys.idempotency(spec.key), spec.id .. ' ' .. spec.digest, 'EX', remember_s) end
  return 'admitted', {unpack(fields, spec_length + 1)}, request
end
