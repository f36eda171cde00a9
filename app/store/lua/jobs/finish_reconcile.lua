-- End a look that found `nothing` or `more`, or `failed`, and note how long it took. Who may go on (under the token `next`) does
-- so at once if there is more, or if somebody found the lease taken. Otherwise the lease is given back, and what is left is
-- asked for again; but what failed comes with the next tick, and no nudge makes it come sooner.
-- @use counters nudges
-- @keys job_lock counters
-- @args token next ttl_ms took_ms found
-- @reply again
-- @reply done

local lease = keys.job_lock('reconcile')
local holder = redis.call('GET', lease)
if args.next ~= '' and holder == args.next then return reply.again() end
if holder ~= args.token then return reply.done() end

counters.add_reconcile(args.took_ms)
redis.call('HSET', keys.counters(), 'reconcile_last_ms', args.took_ms)

if args.found == 'failed' then
  redis.call('DEL', lease)
  nudges.suppress()
  return reply.done()
end

local left = args.found == 'more' or nudges.state_is('missed')
if left and args.next ~= '' then
  redis.call('SET', lease, args.next, 'PX', args.ttl_ms)
  nudges.clear()
  return reply.again()
end

redis.call('DEL', lease)
if left then
  nudges.clear()
  nudges.send()
end
return reply.done()
