-- Read the positions of queued requests in the queues of their pools, in the order of the ids. The reply has fewer rows if the work budget
-- is used up; it has at least one.
-- @use queue_positions requests work_budget
-- @args ids
-- @reply found positions

local rows = {}
for _, id in ipairs(cjson.decode(args.ids)) do
  local request = requests.load(id)
  rows[#rows + 1] = request and queue_positions.of_request(request) or {}
  if work_budget.is_used_up() then break end
end
return reply.found(rows)
