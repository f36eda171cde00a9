-- What the metrics count, and who is leaving now.
-- @keys counts
-- @reply found counts

return reply.found(redis.call('HGETALL', keys.counts()))
