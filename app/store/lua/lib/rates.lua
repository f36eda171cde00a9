-- Rates of tokens, by the generic cell rate algorithm: each call takes a slice of time, and the end of the last slice may lie
-- up to a second in the future. Each request of an accepted batch takes a slice, too, so the end may lie further in the future.
-- @use clock
-- @writes rate

rates.AHEAD_MS, rates.ROUNDING_MS = 1000, 0.5
local FORGOTTEN_MS, LONGEST_MS = 10000, 3600000

-- Store the end of the last slice, and the time.
function rates.save(token, slice_end)
  local kept_ms = math.ceil(math.max(0, slice_end - clock.now)) + FORGOTTEN_MS
  redis.call('SET', keys.rate(token), string.format('%.3f %.0f', slice_end, clock.now), 'PX', kept_ms)
end

-- Return the time at which the next slice of a token begins. After the clock was set back, no call waits for the difference.
function rates.next_slice(token)
  -- GETEX is a write that a server out of memory lets pass, as it then does with SET: a token with a rate can still release.
  local saved = redis.call('GETEX', keys.rate(token), 'PX', LONGEST_MS) or ''
  local slice_end, saved_ms = string.match(saved, '^(%S+) (%S+)$')
  if not slice_end then return clock.now end
  local lost_ms = math.max(0, tonumber(saved_ms) - clock.now)
  local next_slice = math.max(clock.now, tonumber(slice_end) - lost_ms)
  if lost_ms > 0 then rates.save(token, next_slice) end
  return next_slice
end
