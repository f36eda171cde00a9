-- Requests by their ids, in that order; those there are no more are left out.
-- @use request_rows requests
-- @args ids
-- @reply found requests

local found = {}
for _, id in ipairs(cjson.decode(args.ids)) do
  local request = requests.load(id)
  if request then found[#found + 1] = request_rows.build(request) end
end
return reply.found(found)
