-- Admit requests one after the other. Each is granted at once, queued or rejected; beyond a limit it is refused. If the work budget is
-- used up first, there are fewer outcomes than specs. `with_status`, for a single spec: if the request is queued, the outcome is `read`,
-- the request with its status in each queue, as `explain` returns it.
-- @use clock grant_loop leases polls queue_status requests submissions work_budget
-- @args now events_kept chunk remember_s specs with_status
-- @reply admitted outcomes more

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local outcomes, more = {}, 0
for i, spec in ipairs(cjson.decode(args.specs)) do
  if i > 1 and work_budget.is_used_up() then break end
  local tag, fields, request = submissions.admit(submissions.prepare(spec), spec, args.remember_s)
  more = math.max(more, grant_loop.settle(tonumber(args.chunk)))
  outcomes[i] = {tag, fields}
  local is_same = tag == 'admitted' or tag == 'known'  -- not a conflict with a request of another body
  if args.with_status == '1' and more == 0 and is_same and request.status == states.queued then
    request = requests.load(request.id)
    outcomes[i] = {'read', polls.flat(request, tag == 'admitted'), leases.end_ms(request), queue_status.rows(request)}
  end
end
return reply.admitted(outcomes, more)
