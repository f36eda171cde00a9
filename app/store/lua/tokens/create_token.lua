-- Keep the record of a new token. A name is free again when who had it has expired.
-- @use clock tokens
-- @args now digest name record lasts_s
-- @reply created record
-- @reply taken

clock.start(args.now)
local known = tokens.record(args.digest)
if known then return reply.created(known) end
local other, _, lives = tokens.find(args.name)
if lives then return reply.taken() end

if other then tokens.delete(other) end
return reply.created(tokens.save(args.digest, args.record, args.lasts_s))
