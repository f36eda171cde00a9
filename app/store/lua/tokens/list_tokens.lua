-- List all tokens, expired ones included.
-- @reads tokens
-- @reply found records

return reply.found(redis.call('HVALS', keys.tokens()))
