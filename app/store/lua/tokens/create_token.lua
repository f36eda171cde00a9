-- Create a token. The name of an expired token is free.
-- @use clock tokens
-- @args now digest name record lasts_s
-- @reply created record
-- @reply taken

clock.start(args.now)
local existing = tokens.record(args.digest)
if existing then return reply.created(existing) end
local other, _, is_valid = tokens.find(args.name)
if is_valid then return reply.taken() end

if other then tokens.delete(other) end
return reply.created(tokens.save(args.digest, args.record, args.lasts_s))
