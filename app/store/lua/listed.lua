-- A page of requests, newest first, before a number of submission.
-- @use requests
-- @keys requests
-- @args before count
-- @reply page found last

local found = {}
local ids = redis.call('ZREVRANGEBYSCORE', keys.requests(), '(' .. args.before, '-inf', 'WITHSCORES', 'LIMIT', 0, tonumber(args.count))
for i = 1, #ids, 2 do
  local request = requests.load(ids[i])
  if request then found[#found + 1] = requests.flat(request) end
end
return reply.page(found, ids[#ids])
