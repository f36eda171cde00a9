-- Find the valid token whose secret has this digest.
-- @use clock tokens
-- @args now digest
-- @reply found record
-- @reply not_found

clock.start(args.now)
local record = tokens.valid_record(args.digest)
if not record then return reply.not_found() end
return reply.found(record)
