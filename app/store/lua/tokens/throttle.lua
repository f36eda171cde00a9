-- Let one more call of a token pass, or return the time (ms) that it has to wait. The rate is an average, with bursts of one second.
-- @use clock rates
-- @args now token per_s
-- @reply allowed
-- @reply wait ms

clock.start(args.now)
local slice_end = rates.next_slice(args.token) + 1000 / tonumber(args.per_s)
local early_ms = slice_end - clock.now - rates.AHEAD_MS
if early_ms > rates.ROUNDING_MS then return reply.wait(math.ceil(early_ms)) end

rates.save(args.token, slice_end)
return reply.allowed()
