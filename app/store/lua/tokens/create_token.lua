-- Keep the record of a new token. A name is free again when who had it has expired.
-- @use clock tokens
-- @args now digest name record lasts_s
-- @reply created record
-- @reply taken

clock.start(args.now)
local known = tokens.known(args.digest)
if known then return reply.created(known) end
local other, _, lives = tokens.called(args.name)
if lives then return reply.taken() end

if other then tokens.forget(other) end
return reply.created(tokens.keep(args.digest, args.record, args.lasts_s))
