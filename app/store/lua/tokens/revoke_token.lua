-- Revoke the token of this id or name.
-- @use clock operation_replies tokens
-- @args now op id_or_name
-- @reply revoked record
-- @reply not_found

clock.start(args.now)
local earlier_record = operation_replies.find(args.op)
if earlier_record then return reply.revoked(earlier_record) end
local digest, record = tokens.find(args.id_or_name)
if not digest then return reply.not_found() end

tokens.delete(digest)
operation_replies.save(args.op, record)
return reply.revoked(record)
