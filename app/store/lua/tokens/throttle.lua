-- Let one more request of a token pass, or say how long (ms) it has to wait: its rate on average, and bursts of one second's worth.
-- @use clock
-- @keys rate
-- @args now token per_s
-- @reply allowed
-- @reply wait ms

-- The generic cell rate algorithm: each request takes its slice of time, and the end of the last slice may be a second ahead.
local AHEAD_MS, ROUNDING_MS, FORGOTTEN_MS = 1000, 0.5, 10000

clock.start(args.now)
local key = keys.rate(args.token)
local last = tonumber(redis.call('GET', key) or 0)
if last > clock.now + AHEAD_MS + ROUNDING_MS then  -- the clock was set back: nobody waits for what it lost
  last = clock.now + AHEAD_MS
  redis.call('SET', key, string.format('%.3f', last), 'PX', FORGOTTEN_MS)
end
local taken = math.max(clock.now, last) + 1000 / tonumber(args.per_s)
local early = taken - clock.now - AHEAD_MS
if early > ROUNDING_MS then return reply.wait(math.ceil(early)) end

redis.call('SET', key, string.format('%.3f', taken), 'PX', FORGOTTEN_MS)
return reply.allowed()
