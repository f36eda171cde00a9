-- Read the number, and the first and last deadline (ms), of the allocated requests (end of lease) and of the queued ones (queue TTL).
-- @use amounts
-- @reads leases waiting
-- @reply found leases waiting

-- Return the number of all requests, the number without a deadline, the first and the last deadline; empty if there is none.
local function summarize(key)
  local never = amounts.format(const.MAX_AMOUNT)
  local first = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. never, 'WITHSCORES', 'LIMIT', 0, 1)
  local last = redis.call('ZREVRANGEBYSCORE', key, '(' .. never, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return {redis.call('ZCARD', key), redis.call('ZCOUNT', key, never, never), first[2] or '', last[2] or ''}
end

return reply.found(summarize(keys.leases()), summarize(keys.waiting()))
