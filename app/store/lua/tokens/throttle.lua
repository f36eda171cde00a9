-- Let one more request of a token pass, or return how long (ms) it has to wait: its average rate, with bursts of one second.
-- @use clock
-- @writes rate
-- @args now token per_s
-- @reply allowed
-- @reply wait ms

-- The generic cell rate algorithm: each request takes its slice of time, and the end of the last slice may be a second ahead.
local AHEAD_MS, ROUNDING_MS, FORGOTTEN_MS = 1000, 0.5, 10000

clock.start(args.now)
local key = keys.rate(args.token)
-- GETEX is a write that a server out of memory lets pass, as it then does with SET: a token with a rate can still release.
local last_slice_end = tonumber(redis.call('GETEX', key, 'PX', FORGOTTEN_MS) or 0)
if last_slice_end > clock.now + AHEAD_MS + ROUNDING_MS then  -- the clock was set back: no request waits for the difference
  last_slice_end = clock.now + AHEAD_MS
  redis.call('SET', key, string.format('%.3f', last_slice_end), 'PX', FORGOTTEN_MS)
end
local slice_end = math.max(clock.now, last_slice_end) + 1000 / tonumber(args.per_s)
local early_ms = slice_end - clock.now - AHEAD_MS
if early_ms > ROUNDING_MS then return reply.wait(math.ceil(early_ms)) end

redis.call('SET', key, string.format('%.3f', slice_end), 'PX', FORGOTTEN_MS)
return reply.allowed()
