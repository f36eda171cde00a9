-- Leases and queue TTLs after the clock was set forward. A deadline that the jump ended begins anew once, because its client
-- was not silent for the whole interval.
-- @use amounts clock
-- @reads request
-- @writes leases meta waiting

local TOLERANCE_MS = 10000  -- longer than a call may take

-- Return the time before which deadlines that have ended begin anew; nil if the clock was not set forward. `expected_ms`: the
-- time that the clock should show according to the caller; empty if the caller does not know.
function clock_jumps.find(expected_ms)
  local expected = tonumber(expected_ms)
  if expected and clock.now > expected + TOLERANCE_MS then
    redis.call('HSET', keys.meta(), 'jumped_ms', amounts.format(clock.now))
    return clock.now
  end
  local jumped_ms = tonumber(redis.call('HGET', keys.meta(), 'jumped_ms') or '')
  return jumped_ms and jumped_ms <= clock.now and jumped_ms or nil
end

local function renew(key, field, jumped_ms, count)
  local ids = redis.call('ZRANGEBYSCORE', key, '-inf', amounts.format(jumped_ms), 'LIMIT', 0, count)
  for _, id in ipairs(ids) do
    local seconds = redis.call('HGET', keys.request(id), field)  -- nil if the request is lost: its deadline ends soon
    redis.call('ZADD', key, 'XX', amounts.format(seconds and clock.after(seconds) or clock.now + 1), id)
  end
  return #ids == count
end

-- Begin anew the leases and queue TTLs that a jump ended, at most `count` of each. Return whether more are left.
function clock_jumps.renew(jumped_ms, count)
  local more_leases, more_waiters = renew(keys.leases(), 'lease_s', jumped_ms, count), renew(keys.waiting(), 'queue_ttl_s', jumped_ms, count)
  return more_leases or more_waiters
end
