-- Leaving: who is told to, the steps of it with their deadlines, and its end, which is a place in the queue or the end of all.
-- @use account_updates accounts admission amounts clock counters grants lanes requests victim_holds
-- @keys  leaving meta pool_held pool_leaving

local TOLD = {'directive', 'deadline_ms', 'told_ms', 'answered', 'extended', 'deferred_s', 'failed', 'rank', 'by_rank', 'stray_ms', 'recalled'}
local JUST_MS = 60000

local function seconds(pool, setting, default) return tonumber(pool.is[setting] or default) end

-- Whether its work has been begun; of a task that is when a worker says so.
local function begun(request) return not request.task or (request.started_ms or '') ~= '' end

-- What ranks somebody, as `priority,class`.
function preemptions.rank(policy, request) return policy.is.priority .. ',' .. request.class end

local function step(request, directive, deadline, news)
  requests.say(news, {'directive'}, directive)
  requests.say(news, {'deadline_ms'}, amounts.whole(deadline))
  if redis.call('HGET', keys.pool_leaving(request.pool), request.id) == '-' then  -- its time stands still
    requests.say(news, {'stray_ms'}, amounts.whole(clock.now))
  else
    redis.call('ZADD', keys.leaving(), amounts.whole(deadline), request.id)
  end
end

-- The second step: it is told to end. Its checkpoint, if it was to make one, has failed.
function preemptions.terminate(pool, request)
  local news = {}
  step(request, 'terminate', clock.now + seconds(pool, 'grace_s', 30) * 1000, news)
  requests.say(news, {'failed'}, '1')
  counters.add('failed_checkpoints|' .. pool.name)
  requests.note(request, 'terminating', news)
end

-- A checkpoint is saved: it can go on from there.
function preemptions.saved(request, reference, fields)
  local now = amounts.whole(clock.now)
  requests.put(request, fields, 'checkpointed_ms', now)
  if reference ~= '' then requests.put(request, fields, 'reference', reference) end
  if request.pool ~= '' then redis.call('HSET', keys.pool_held(request.pool), request.id, requests.line(request)) end
end

-- Somebody who was told to leave has left (`preempted`, by `how` it said so) or is made to (`forced`): the units come back, and it
-- stands in the queue again with its age, unless it was there too often.
function preemptions.leave(request, event, how, more)
  local pool, lane, fields = accounts.pool(request.pool), lanes.of(request), {}
  local times = (tonumber(request.preemptions) or 0) + (begun(request) and 1 or 0)  -- who had not begun lost nothing
  local lost = (event == 'forced' or request.failed == '1') and pool.is.requeue_failed_checkpoint == '0'
  local again = not lost and (request.retries == '-1' or times <= tonumber(request.retries))
  local ranks = more or {rank = request.rank or '', by_rank = request.by_rank}
  local news = {'preemptions', amounts.whole(times), 'left_fence', request.fence, 'left_by', how or '',
    'preempted_fence', redis.call('HGET', keys.meta(), 'fence'), 'resume', request.checkpointed_ms and '1' or '0'}
  requests.say(news, TOLD, '')
  grants.back(request, true)
  if not again then
    requests.finish(request, states.preempted, event, news, fields, ranks)
    return requests.write(request, fields)
  end
  requests.say(news, {'queued_ms'}, amounts.whole(clock.now))
  requests.move(request, states.queued, event, news, fields, ranks)
  for _, name in ipairs({'pool', 'fence', 'granted_ms'}) do requests.put(request, fields, name, '') end
  for _, name in ipairs((request.runner or '') ~= '' and {'runner', 'started_ms'} or {}) do requests.put(request, fields, name, '') end
  admission.again(request, lane, fields)
  if request.status == states.queued then counters.add('requeued|' .. pool.name) end
  requests.write(request, fields)
end

-- Tell somebody to leave for the owner of a hold, or for nobody (nil) if its account is over a limit; or take its units at once where
-- no grace is given, or nobody is there to be told as its task has not begun.
function preemptions.begin(path, hold, request, reason, by_rank)
  local policy, pool, lane, news, fields = path[1], path[#path], lanes.of(request), {}, {}
  local more = {rank = preemptions.rank(policy, request), by_rank = by_rank}
  counters.add('preemptions|' .. pool.name .. '|' .. (policy.is.profile or 'batch') .. '|' .. reason)
  redis.call('HSET', keys.pool_leaving(pool.name), request.id, hold and hold.id or '!')
  if hold then victim_holds.expect(pool, hold, path, lane.ask, 1) end
  requests.say(news, {'reason'}, reason)
  requests.say(news, {'preempted_by'}, hold and hold.id or '')
  requests.say(news, {'told_fence'}, request.fence)
  if seconds(pool, 'grace_s', 30) == 0 or not begun(request) then
    for i = 1, #news, 2 do requests.put(request, fields, news[i], news[i + 1]) end
    requests.write(request, fields)
    return preemptions.leave(request, 'preempted', nil, more)
  end
  account_updates.went(path, lane.ask)
  local first = request.checkpoint ~= 'none'
  requests.say(news, {'told_ms'}, amounts.whole(clock.now))
  requests.say(news, {'rank'}, more.rank)
  requests.say(news, {'by_rank'}, by_rank)
  step(request, first and 'checkpoint' or 'terminate',
    clock.now + seconds(pool, first and 'checkpoint_timeout_s' or 'grace_s', first and 600 or 30) * 1000, news)
  requests.move(request, states.preempting, 'preempting', news, fields, more)
  requests.write(request, fields)
end

-- Whether who says that it has left was called back so lately that it cannot have heard of it; then it leaves for the reason it had.
function preemptions.crossed(request)
  local at, by, reason = string.match(request.recalled or '', '^(%S+) (%S*) (%S+)$')
  if not at or request.told_fence ~= request.fence or clock.now - tonumber(at) > JUST_MS then return false end
  local fields = {}
  requests.put(request, fields, 'preempted_by', by)
  requests.put(request, fields, 'reason', reason)
  requests.write(request, fields)
  return true
end

-- Nobody needs it gone any more: it stays.
function preemptions.recall(request)
  local news, fields = {}, {}
  requests.say(news, {'recalled'}, amounts.whole(clock.now) .. ' ' .. request.preempted_by .. ' ' .. request.reason)
  account_updates.shook(accounts.path(request.pool, request.component))
  redis.call('HDEL', keys.pool_leaving(request.pool), request.id)
  redis.call('ZREM', keys.leaving(), request.id)
  local spoken = {unpack(TOLD, 1, #TOLD - 1)}
  requests.say(news, spoken, '')
  requests.move(request, states.allocated, 'reprieved', news, fields)
  for _, name in ipairs({'reason', 'preempted_by'}) do requests.put(request, fields, name, '') end
  requests.write(request, fields)
end
