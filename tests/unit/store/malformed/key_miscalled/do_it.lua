-- Do it.
-- @reads pool
-- @reply done key

return reply.done(keys.pool('p', 'q'))
