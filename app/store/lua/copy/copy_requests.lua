-- Requests, each as a copy needs it; those there are no more are left out.
-- @use request_copies
-- @args ids
-- @reply read found

local found = {}
for _, id in ipairs(cjson.decode(args.ids)) do found[#found + 1] = request_copies.read(id) end
return reply.read(found)
