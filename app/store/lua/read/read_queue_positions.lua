-- Read the positions of queued requests in the queues of their pools: a row for each id, in their order. If the work budget is used up, the
-- last rows are left out; the reply has at least one.
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
