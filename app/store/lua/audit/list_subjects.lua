-- List the tokens and components whose limits count waiters.
-- @reads limited_subjects
-- @reply found subjects

return reply.found(redis.call('SMEMBERS', keys.limited_subjects()))
