-- Count the waiters of a token or component with limits of its own, and their shapes. `subject`: `token/id` or `component/type/name`.
-- @reads limited_lanes limited_waiting
-- @args subject
-- @reply counted waiting shapes

return reply.counted(redis.call('ZCARD', keys.limited_waiting(args.subject)), redis.call('SCARD', keys.limited_lanes(args.subject)))
