-- List the requests that match a filter among the `scan` newest ids before a submission number, at most `count`. A call ends early if the
-- work budget is used up; `last` is the number at which the next call begins, empty after the last id.
-- @use request_filters request_rows requests work_budget
-- @reads requests
-- @args before count scan filter
-- @reply page found last

local filter, count, scan = request_filters.decode(args.filter), tonumber(args.count), tonumber(args.scan)
local members = redis.call('ZREVRANGEBYSCORE', keys.requests(), '(' .. args.before, '-inf', 'WITHSCORES', 'LIMIT', 0, scan + 1)

local ids = {}
for i = 1, math.min(#members, 2 * scan), 2 do ids[#ids + 1] = members[i] end
local candidates, rows = request_filters.candidates(filter, ids), {}
for i, id in ipairs(ids) do
  local request = candidates[id] and request_filters.status_of_match(filter, id) and requests.load(id)
  if request then rows[#rows + 1] = request_rows.build(request) end
  if #rows == count or work_budget.is_used_up() or i == #ids then
    return reply.page(rows, 2 * i < #members and members[2 * i] or '')
  end
end
return reply.page(rows, '')
