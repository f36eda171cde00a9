-- List a page of the allocations of a pool, in order of grant, after a fence.
-- @use accounts request_rows requests
-- @reads pool_allocations
-- @args pool after count
-- @reply page found last
-- @reply not_found

if not accounts.pool(args.pool) then return reply.not_found() end

local rows, count = {}, tonumber(args.count)
local ids = redis.call('ZRANGEBYSCORE', keys.pool_allocations(args.pool), '(' .. args.after, '+inf', 'WITHSCORES', 'LIMIT', 0, count + 1)
for i = 1, math.min(#ids, 2 * count), 2 do
  local request = requests.load(ids[i])
  if request then rows[#rows + 1] = request_rows.build(request) end
end
return reply.page(rows, #ids > 2 * count and ids[2 * count] or '')
