-- Count, by status, the requests that match a filter among the `scan` newest ids before a submission number. A call ends early if the
-- work budget is used up; `last` is the number at which the next call begins, empty after the last id.
-- @use request_filters work_budget
-- @reads requests
-- @args before scan filter
-- @reply counted counts last

local filter, scan = request_filters.decode(args.filter), tonumber(args.scan)
filter.needs_fields = true  -- each match is counted by its status
local members = redis.call('ZREVRANGEBYSCORE', keys.requests(), '(' .. args.before, '-inf', 'WITHSCORES', 'LIMIT', 0, scan + 1)

local ids = {}
for i = 1, math.min(#members, 2 * scan), 2 do ids[#ids + 1] = members[i] end
local candidates, count_by_status, counts, last = request_filters.candidates(filter, ids), {}, {}, ''
for i, id in ipairs(ids) do
  local status = candidates[id] and request_filters.status_of_match(filter, id)
  if status then count_by_status[status] = (count_by_status[status] or 0) + 1 end
  if work_budget.is_used_up() or i == #ids then
    last = 2 * i < #members and members[2 * i] or ''
    break
  end
end
for status, count in pairs(count_by_status) do
  counts[#counts + 1] = status
  counts[#counts + 1] = count
end
return reply.counted(counts, last)
