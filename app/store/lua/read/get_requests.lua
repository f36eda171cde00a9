-- Read requests by their ids, in that order; unknown ids are left out.
-- @use request_rows requests
-- @args ids
-- @reply found requests

local rows = {}
for _, id in ipairs(cjson.decode(args.ids)) do
  local request = requests.load(id)
  if request then rows[#rows + 1] = request_rows.build(request) end
end
return reply.found(rows)
