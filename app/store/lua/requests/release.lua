-- Release allocations one after the other; after each release, grant the waiters that then fit. If the work budget is used up first,
-- there are fewer outcomes than allocations.
-- @use clock grant_loop releases requests work_budget
-- @args now events_kept chunk allocations
-- @reply released outcomes more

clock.start(args.now)
requests.set_stream_length(args.events_kept)

local outcomes, more = {}, 0
for i, entry in ipairs(cjson.decode(args.allocations)) do
  if i > 1 and work_budget.is_used_up() then break end
  local tag, request, reason = releases.release(entry[1], entry[2], entry[3], entry[4])
  more = math.max(more, grant_loop.settle(tonumber(args.chunk)))
  if tag == 'released' and entry[3] == 'vacated' then request = requests.flat(requests.load(entry[1])) end  -- the release may have granted it again
  outcomes[i] = {tag, request, reason}
end
return reply.released(outcomes, more)
