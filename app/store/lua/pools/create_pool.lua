-- Create a pool.
-- @use accounts amounts operation_replies pool_limits
-- @writes pool pools
-- @args op name description capacity settings
-- @reply created
-- @reply exists
-- @reply limited subject name limit present

if operation_replies.find(args.op) then return reply.created() end
if accounts.pool(args.name) then return reply.exists() end
local limit_refusal = pool_limits.refusal(1, 0)
if limit_refusal then return reply.limited(unpack(limit_refusal)) end

local fields = {}
local capacity = amounts.decode(args.capacity)
for _, key in ipairs(capacity.keys) do
  fields[#fields + 1] = 'limit:' .. key
  fields[#fields + 1] = amounts.format(capacity.of[key])
end
for _, setting in ipairs(cjson.decode(args.settings)) do fields[#fields + 1] = setting end
redis.call('HSET', keys.pool(args.name), unpack(fields))
redis.call('HSET', keys.pools(), args.name, args.description)
operation_replies.save(args.op)
return reply.created()
