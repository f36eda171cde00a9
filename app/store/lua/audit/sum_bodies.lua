-- Add up the sizes of the bodies of a range of requests, and list their tasks. Or list a range of the tasks that wait for their time or
-- their broker, each with the size of its body. The reply also has the bytes ever saved and deleted. The last range has no cursor.
-- @reads delayed meta outbox request requests task unstarted
-- @args kind cursor count
-- @reply read bytes tasks cursor saved deleted

local bytes, tasks, cursor = 0, {}, ''

local function add_task(id)
  local size = redis.call('HGET', keys.task(id), 'bytes')
  if size then tasks[#tasks + 1] = {id, size} end
end

if args.kind == 'requests' then
  local members = redis.call('ZRANGEBYSCORE', keys.requests(), '(' .. args.cursor, '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(args.count))
  for i = 1, #members, 2 do
    local values = redis.call('HMGET', keys.request(members[i]), 'bytes', 'task')
    bytes = bytes + tonumber(values[1] or 0)
    if values[2] and redis.call('HGET', keys.task(values[2]), 'request') == members[i] then add_task(values[2]) end
  end
  cursor = members[#members] or ''
else
  local index = ({delayed = keys.delayed(), outbox = keys.outbox(), unstarted = keys.unstarted()})[args.kind]
  local scanned = redis.call('ZSCAN', index, args.cursor, 'COUNT', args.count)
  for i = 1, #scanned[2], 2 do add_task(scanned[2][i]) end
  if scanned[1] ~= '0' then cursor = scanned[1] end
end
local totals = redis.call('HMGET', keys.meta(), 'saved_bytes', 'deleted_bytes')
return reply.read(string.format('%.0f', bytes), tasks, cursor, totals[1] or '0', totals[2] or '0')
