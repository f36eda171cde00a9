-- List all tokens, expired ones included.
-- @keys tokens
-- @reply found records

return reply.found(redis.call('HVALS', keys.tokens()))
