-- Look after the tasks whose time has come, a bounded number: those put off enter the queue; of those lost, or begun by nobody, a
-- successor does; the others are to be sent off by the caller, who is alone in that until the claim is over.
-- @use amounts clock counters grant_loop grants operation_replies outbox requests tasks
-- @keys delayed outbox task unstarted
-- @args now events_kept chunk count claim_ms start_ms tries ids
-- @reply taken rows now next more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, now, tries = tonumber(args.count), amounts.format(clock.now), tonumber(args.tries)
local LONGEST_MS = 900000
local ids, rows = cjson.decode(args.ids), {}
local op, given = ids[1], #ids
if operation_replies.find(op) then count = 0 end  -- these ids are taken; what was claimed comes back

local function fresh()
  if #ids == given then operation_replies.save(op) end
  return table.remove(ids)
end

local function due(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, count)
end

-- A task whose last request is over enters the queue again, at its old place; later if that is of no use yet.
local function succeed(task, request, delay_ms)
  tasks.inherit(task, request)
  redis.call('ZREM', keys.outbox(), task.id)
  if delay_ms > 0 then return tasks.delay(task, clock.now + delay_ms) end
  tasks.enter(task, fresh())
end

-- Nobody began it, however often it was sent: others may have what it holds. The more often, the longer it stays away.
local function take_back(task, request)
  local fields, returned = {}, tonumber(task.returned) or 0
  grants.take_back(request)
  requests.finish(request, states.expired, 'expired', {'reason', 'not_started'}, fields)
  requests.save(request, fields)
  redis.call('HSET', keys.task(task.id), 'returned', amounts.format(returned + 1))
  counters.add('not_started')
  succeed(task, request, returned == 0 and 0 or math.min(LONGEST_MS, tonumber(args.start_ms) * 2 ^ math.min(returned - 1, 20)))
end

local function lost(task, request)
  local times, most = (tonumber(task.lost) or 0) + 1, tonumber(task.most)
  if most >= 0 and times > most then return false end
  redis.call('HSET', keys.task(task.id), 'lost', amounts.format(times))
  counters.add('redelivered')
  succeed(task, request, 0)
  return true
end

local LOST = {lease_lapsed = true, worker_lost = true}

-- A broker takes nothing, or not this: it holds its units for no longer than if nobody began it.
local function is_stuck(request)
  return clock.now > tonumber(request.granted_ms) + tries * tonumber(args.start_ms)
end

-- It will never run, which is said until its worker has heard it, but not for ever.
local function over(task, request)
  if (tonumber(task.told) or 0) < tries then return 'ended', request end
  outbox.delete_task(task.id)
end

-- What is to be said of it to its worker; nil if nothing is.
local function look(task)
  if task.ended then return over(task) end
  local request = tasks.request(task)
  if not request then
    if task.request then return over(task) end
    return nil
  end
  if request.status == states.queued then return nil end
  if tasks.is_open(request) then
    if not tasks.is_unstarted(request) then return nil end
    if tasks.tries(task, request) < tries and not is_stuck(request) then return 'run', request end
    return take_back(task, request)
  end
  if request.status == states.expired and LOST[request.reason] and lost(task, request) then return nil end
  return over(task, request)
end

-- Sent, and not begun. A write that a server out of memory refuses comes first: nothing is taken back while none can begin.
for _, id in ipairs(due(keys.unstarted())) do
  redis.call('ZADD', keys.outbox(), now, id)
  redis.call('ZREM', keys.unstarted(), id)
end

for _, id in ipairs(due(keys.delayed())) do
  redis.call('ZREM', keys.delayed(), id)
  local task = tasks.load(id)
  if task and task.due_ms then tasks.enter(task, fresh()) end
end

for i, id in ipairs(due(keys.outbox())) do
  local claimed = clock.now + tonumber(args.claim_ms) + i - 1  -- in their order, if nobody says what became of them
  redis.call('ZADD', keys.outbox(), amounts.format(claimed), id)
  local task = tasks.load(id)
  local what, request
  if task then what, request = look(task) end
  if what then
    local sent = what == 'ended' and (tonumber(task.told) or 0) or tasks.tries(task, request)
    rows[#rows + 1] = {what, id, redis.call('HGET', keys.task(id), 'message'), sent, task.ended or '', request and requests.flat(request) or {}}
  elseif tonumber(redis.call('ZSCORE', keys.outbox(), id) or 0) == claimed then  -- else it was granted just now
    redis.call('ZREM', keys.outbox(), id)
  end
end

local more = grant_loop.settle(tonumber(args.chunk))
local first
for _, key in ipairs({keys.delayed(), keys.outbox(), keys.unstarted()}) do
  local at = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if at and (not first or at < first) then first = at end
end
return reply.taken(rows, now, first and amounts.format(first) or '', more)
