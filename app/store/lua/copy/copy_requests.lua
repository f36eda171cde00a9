-- Read requests as a workspace copy needs them, and the lanes of the waiters among them. The row of an unknown id has no fields.
-- @use request_copies
-- @args ids
-- @reply read found lanes

local rows = {}
for i, id in ipairs(cjson.decode(args.ids)) do rows[i] = request_copies.read(id) end
return reply.read(rows, request_copies.lanes(rows))
