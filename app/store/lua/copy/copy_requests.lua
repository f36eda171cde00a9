-- Read requests as a workspace copy needs them; unknown ids are left out.
-- @use request_copies
-- @args ids
-- @reply read found

local rows = {}
for _, id in ipairs(cjson.decode(args.ids)) do rows[#rows + 1] = request_copies.read(id) end
return reply.read(rows)
