-- List a page of requests, newest first, before a submission number: of so many scanned those that match the filter.
-- @use request_rows requests
-- @reads requests
-- @args before count scan filter
-- @reply page found last

local filter, count, scan = cjson.decode(args.filter), tonumber(args.count), tonumber(args.scan)

local function is_wanted(request)
  local kind, name = request.component:match('^([^/]*)/(.*)$')
  if filter.status and not filter.status[request.status] then return false end
  if filter.kind and kind ~= filter.kind or filter.name and name ~= filter.name then return false end
  if filter.pool and request.pool ~= filter.pool then return false end
  if not filter.labels then return true end
  local labels = request.labels and cjson.decode(request.labels) or {}
  for key, value in pairs(filter.labels) do
    if labels[key] ~= value then return false end
  end
  return true
end

local rows = {}
local ids = redis.call('ZREVRANGEBYSCORE', keys.requests(), '(' .. args.before, '-inf', 'WITHSCORES', 'LIMIT', 0, scan + 1)
for i = 1, math.min(#ids, 2 * scan), 2 do
  local request = requests.load(ids[i])
  if request and is_wanted(request) then rows[#rows + 1] = request_rows.build(request) end
  if #rows == count or i == 2 * scan - 1 then return reply.page(rows, i + 1 < #ids and ids[i + 1] or '') end
end
return reply.page(rows, '')
