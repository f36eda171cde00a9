-- End a pass with its result (`nothing`, `more` or `failed`), and count its duration. If there is more to do, or a trigger found the lock
-- taken, the caller goes on at once under the token `next`. Without such a token the lock is released and a new nudge is sent.
-- After `failed` the lock is released, and no nudge counts until the next tick.
-- @use counters nudges
-- @writes counters job_lock
-- @args token next ttl_ms took_ms found
-- @reply again
-- @reply done

local lock = keys.job_lock('reconcile')
local holder = redis.call('GET', lock)
if args.next ~= '' and holder == args.next then return reply.again() end
if holder ~= args.token then return reply.done() end

counters.add_reconcile(args.took_ms)
redis.call('HSET', keys.counters(), 'reconcile_last_ms', args.took_ms)

if args.found == 'failed' then
  redis.call('DEL', lock)
  nudges.suppress()
  return reply.done()
end

local has_more = args.found == 'more' or nudges.state_is('missed')
if has_more and args.next ~= '' then
  redis.call('SET', lock, args.next, 'PX', args.ttl_ms)
  nudges.clear()
  return reply.again()
end

redis.call('DEL', lock)
if has_more then
  nudges.clear()
  nudges.send()
end
return reply.done()
