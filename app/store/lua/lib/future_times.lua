-- Deadlines that are further away than their whole interval, because the clock was set back. Each is shortened to one interval
-- from now. A scan of all deadlines begins at the first cleanup of a worker. It also begins if the clock shows a time before
-- the last cleanup, or before the time that the worker expects. The next cleanup resumes it. Infinite deadlines, and times of
-- day that a client gave, stay.
-- @use amounts clock requests
-- @reads pool_allocations pools
-- @writes delayed leases meta pool_allocation_records pool_walltime_ends preemption_deadlines request task waiting

local TOLERANCE_MS = 1000
local LONGEST_RETURN_MS = 900000  -- a task that was not started enters the queue again within this time (`tasks/take_outbox`)

local function is_ahead(ms, latest_ms)
  local time = tonumber(ms or '')
  return time and latest_ms and time > latest_ms + TOLERANCE_MS
end

-- Return the end of an interval of a request if it begins now; nil if the request has no such interval.
local function end_of(id, field)
  local seconds = redis.call('HGET', keys.request(id), field)
  return seconds and clock.after(seconds) or nil
end

-- For each set with deadlines: its key, the latest deadline of a member (nil: any), and the other keys that have the deadline.
local deadlines = {
  {key = keys.leases(), latest = function(id) return end_of(id, 'lease_s') end},
  {key = keys.waiting(), latest = function(id) return end_of(id, 'queue_ttl_s') end},
  {
    key = keys.preemption_deadlines(),
    latest = function(id)
      local times = redis.call('HMGET', keys.request(id), 'preempting_ms', 'deadline_ms')
      local begun_ms, deadline_ms = tonumber(times[1] or ''), tonumber(times[2] or '')
      return begun_ms and deadline_ms and clock.now + math.max(0, deadline_ms - begun_ms)
    end,
    set = function(id, deadline) redis.call('HSET', keys.request(id), 'preempting_ms', amounts.format(clock.now), 'deadline_ms', deadline) end,
  },
  {
    key = keys.delayed(),
    latest = function(id) return redis.call('HGET', keys.task(id), 'returned') and clock.now + LONGEST_RETURN_MS or nil end,
    set = function(id, deadline) redis.call('HSET', keys.task(id), 'due_ms', deadline) end,
  },
}

-- Shorten deadlines of a set from a position on. A position is a score, and the number of members with this score whose
-- deadline stays. Return the numbers of examined and of shortened deadlines, and the next position; nil at the end.
local function cut_deadlines(set, score, offset, count)
  local rows = redis.call('ZRANGEBYSCORE', set.key, score, '(' .. amounts.format(const.MAX_AMOUNT), 'WITHSCORES', 'LIMIT', offset, count)
  local cut_count = 0
  for i = 1, #rows, 2 do
    local id, latest_ms = rows[i], set.latest(rows[i])
    if tonumber(rows[i + 1]) ~= tonumber(score) then score, offset = amounts.format(tonumber(rows[i + 1])), 0 end
    if is_ahead(rows[i + 1], latest_ms) then
      local deadline = amounts.format(latest_ms)
      redis.call('ZADD', set.key, 'XX', deadline, id)
      if set.set then set.set(id, deadline) end
      cut_count = cut_count + 1
    else
      offset = offset + 1
    end
  end
  return #rows / 2, cut_count, #rows == 2 * count and score or nil, offset
end

-- Cut the times of grant in a pool from a fence on, and the times that depend on them. Return the same as `cut_deadlines`.
local function cut_grants(pool, fence, count)
  local ids, now, cut_count = redis.call('ZRANGEBYSCORE', keys.pool_allocations(pool), fence, '+inf', 'WITHSCORES', 'LIMIT', 0, count), amounts.format(clock.now), 0
  for i = 1, #ids, 2 do
    if is_ahead(redis.call('HGET', keys.request(ids[i]), 'granted_ms'), clock.now) then
      local request, fields = requests.load(ids[i]), {}
      requests.set(request, fields, 'granted_ms', now)
      if is_ahead(request.checkpointed_ms, clock.now) then requests.set(request, fields, 'checkpointed_ms', now) end
      requests.save(request, fields)
      if request.walltime_s then redis.call('ZADD', keys.pool_walltime_ends(pool), amounts.format(clock.after(request.walltime_s)), request.id) end
      redis.call('HSET', keys.pool_allocation_records(pool), request.id, requests.allocation_record(request))
      cut_count = cut_count + 1
    end
  end
  return #ids / 2, cut_count, #ids == 2 * count and '(' .. ids[#ids] or nil, 0
end

-- Cut times in at most `count` records. `last_ms`: the time of the last cleanup. `expected_ms`: the time that the clock should show
-- according to the caller; empty if the caller does not know. Return the number of cut times, and 1 if more are left.
function future_times.cut(last_ms, expected_ms, count)
  local position = redis.call('HGET', keys.meta(), 'time_pass')
  local is_set_back = is_ahead(last_ms, clock.now) or is_ahead(expected_ms, clock.now)
  if is_set_back or not position and expected_ms == '' then
    position = '1 - 0'
    local is_unknown = not redis.call('HGET', keys.meta(), 'set_back_ms')
    if is_set_back or is_unknown then redis.call('HSET', keys.meta(), 'set_back_ms', amounts.format(clock.now)) end
  elseif not position then
    return 0, 0
  end
  local pools = redis.call('HKEYS', keys.pools())
  table.sort(pools)
  local step, start, offset = string.match(position, '^(%d+) (%S+) (%d+)$')
  local cut_total, last_step, examined, cut_count = 0, #deadlines + #pools
  step, offset = tonumber(step), tonumber(offset)
  while step <= last_step and count > 0 do
    local set, pool = deadlines[step], pools[step - #deadlines]
    if set then examined, cut_count, start, offset = cut_deadlines(set, start == '-' and amounts.format(clock.now) or start, offset, count)
    else examined, cut_count, start, offset = cut_grants(pool, start == '-' and '-inf' or start, count) end
    count, cut_total = count - examined, cut_total + cut_count
    if not start then step, start, offset = step + 1, '-', 0 end
  end
  if step > last_step then
    redis.call('HDEL', keys.meta(), 'time_pass')
    return cut_total, 0
  end
  redis.call('HSET', keys.meta(), 'time_pass', step .. ' ' .. start .. ' ' .. amounts.format(offset))
  return cut_total, 1
end

-- Return a time of the past. If it lies ahead because the clock was set back, return the time at which this was found.
function future_times.past(ms)
  if tonumber(ms) <= clock.now then return tonumber(ms) end
  return math.min(clock.now, tonumber(redis.call('HGET', keys.meta(), 'set_back_ms') or clock.now))
end
