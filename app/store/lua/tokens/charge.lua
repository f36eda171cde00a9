-- Charge a token for the other requests of a batch that was let pass. The next call waits until their slices are over.
-- @use clock operation_replies rates
-- @args now op token per_s count
-- @reply charged

clock.start(args.now)
if operation_replies.find(args.op) then return reply.charged() end
rates.save(args.token, rates.next_slice(args.token) + tonumber(args.count) * 1000 / tonumber(args.per_s))
operation_replies.save(args.op)
return reply.charged()
