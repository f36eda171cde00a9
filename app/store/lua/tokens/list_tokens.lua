-- The records of all tokens, those that have expired among them.
-- @keys tokens
-- @reply found records

return reply.found(redis.call('HVALS', keys.tokens()))
