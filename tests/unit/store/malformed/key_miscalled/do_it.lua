-- Do it.
-- @keys pool
-- @reply done key

return reply.done(keys.pool('p', 'q'))
