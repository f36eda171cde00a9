-- Take a bounded number of due tasks. A delayed task enters the queue. A lost task, or one that no worker started, gets a successor
-- request. The others are returned to be sent, and claimed by the caller for `claim_ms`.
-- @use amounts clock counters grant_loop grants operation_replies outbox requests task_delays tasks work_budget
-- @writes delayed outbox task unstarted
-- @args now events_kept chunk count claim_ms start_ms tries ids
-- @reply taken rows now next more

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local count, now, tries = tonumber(args.count), amounts.format(clock.now), tonumber(args.tries)
local LONGEST_MS, LONGEST_PAUSE_MS = 900000, 60000  -- between two tries: of a task that is not started, of a broker that is down
local ids, rows = cjson.decode(args.ids), {}
local operation, id_count = ids[1], #ids
if operation_replies.find(operation) then count = 0 end  -- these ids are used; claimed tasks come back when the claim ends

local function next_id()
  if #ids == id_count then operation_replies.save(operation) end
  return table.remove(ids)
end

local function due_tasks(key) return redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, work_budget.is_used_up() and 0 or count) end

-- Queue the successor of an ended request of a task under its submission number; with a delay if given, or if its template is full.
local function enter_successor(task, request, delay_ms)
  tasks.inherit(task, request)
  redis.call('ZREM', keys.outbox(), task.id)
  local pause_ms = math.max(delay_ms, task_delays.template_delay_ms(task))
  if pause_ms > 0 then return task_delays.delay(task, clock.now + pause_ms) end
  tasks.enter(task, next_id())
end

-- Take the units back from a task that no worker started although it was sent several times. Each time it waits longer.
local function take_back(task, request)
  local fields, return_count = {}, tonumber(task.returned) or 0
  grants.take_back(request)
  requests.finish(request, states.expired, 'expired', {'reason', 'not_started'}, fields)
  requests.save(request, fields)
  redis.call('HSET', keys.task(task.id), 'returned', amounts.format(return_count + 1))
  counters.add('not_started')
  enter_successor(task, request, return_count == 0 and 0 or math.min(LONGEST_MS, tonumber(args.start_ms) * 2 ^ math.min(return_count - 1, 20)))
end

local function retry_lost(task, request)
  local lost_count, max_retries = (tonumber(task.lost) or 0) + 1, tonumber(task.most)
  if max_retries >= 0 and lost_count > max_retries then return false end
  redis.call('HSET', keys.task(task.id), 'lost', amounts.format(lost_count))
  counters.add('redelivered')
  enter_successor(task, request, 0)
  return true
end

local LOST_REASONS = {lease_lapsed = true, worker_lost = true}

-- True if the broker did not accept the task for as long as a task that is not started keeps its units.
local function is_stuck(request)
  return clock.now > tonumber(request.granted_ms) + tries * tonumber(args.start_ms)
end

-- Return the row of a task that will never run, for a last message to its worker; nil once that was sent often enough.
local function end_dispatch(task, request)
  if (tonumber(task.end_notices) or 0) < tries then return 'ended', request end
  outbox.delete_task(task.id)
end

-- Return the kind of message to send for a task, and its request; nil if there is nothing to send.
local function next_dispatch(task)
  if task.ended then return end_dispatch(task) end
  local request = tasks.request(task)
  if not request then
    if task.request then return end_dispatch(task) end
    return nil
  end
  if request.status == states.queued then return nil end
  if tasks.is_open(request) then
    if not tasks.is_unstarted(request) then return nil end
    if tasks.tries(task, request) < tries and not is_stuck(request) then return 'run', request end
    return take_back(task, request)
  end
  if request.status == states.expired and LOST_REASONS[request.reason] and retry_lost(task, request) then return nil end
  return end_dispatch(task, request)
end

outbox.cut_future_times(math.max(tonumber(args.claim_ms), LONGEST_PAUSE_MS), tonumber(args.start_ms), count)

-- Sent and not started. ZADD comes first, as a server out of memory refuses it: no units are taken back while no task can start.
for _, id in ipairs(due_tasks(keys.unstarted())) do
  redis.call('ZADD', keys.outbox(), now, id)
  redis.call('ZREM', keys.unstarted(), id)
end

for _, id in ipairs(due_tasks(keys.delayed())) do
  if work_budget.is_used_up() then break end
  redis.call('ZREM', keys.delayed(), id)
  local task = tasks.load(id)
  if task and task.due_ms and not task_delays.postpone(task) then tasks.enter(task, next_id()) end
end

for i, id in ipairs(due_tasks(keys.outbox())) do
  if work_budget.is_used_up() then break end
  local claimed_until_ms = clock.now + tonumber(args.claim_ms) + i - 1  -- in their order, if the claim ends without a result
  redis.call('ZADD', keys.outbox(), amounts.format(claimed_until_ms), id)
  local task = tasks.load(id)
  local kind, request
  if task then kind, request = next_dispatch(task) end
  if kind then
    local tries_so_far = kind == 'ended' and (tonumber(task.end_notices) or 0) or tasks.tries(task, request)
    rows[#rows + 1] = {kind, id, redis.call('HGET', keys.task(id), 'message'), tries_so_far, task.ended or '', request and requests.flat(request) or {}}
  elseif tonumber(redis.call('ZSCORE', keys.outbox(), id) or 0) == claimed_until_ms then  -- else it was granted just now
    redis.call('ZREM', keys.outbox(), id)
  end
end

local more = grant_loop.settle(tonumber(args.chunk))
local next_ms
for _, key in ipairs({keys.delayed(), keys.outbox(), keys.unstarted()}) do
  local due_ms = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if due_ms and (not next_ms or due_ms < next_ms) then next_ms = due_ms end
end
return reply.taken(rows, now, next_ms and amounts.format(next_ms) or '', more)
