-- Read the creation numbers of a page of the declared policies of a pool, from a cursor on, and with the first page the usage samples,
-- oldest first. Return the cursor of the next page.
-- @reads policy pool pool_policies pool_usage_history
-- @args pool cursor count
-- @reply found samples numbers cursor
-- @reply not_found

if redis.call('EXISTS', keys.pool(args.pool)) == 0 then return reply.not_found() end
local samples = args.cursor == '0' and redis.call('LRANGE', keys.pool_usage_history(args.pool), 0, -1) or {}
local page, numbers = redis.call('SSCAN', keys.pool_policies(args.pool), args.cursor, 'COUNT', args.count), {}
for _, component in ipairs(page[2]) do
  local number, template = unpack(redis.call('HMGET', keys.policy(args.pool, component), 'creation_number', 'template'))
  if not template then numbers[#numbers + 1], numbers[#numbers + 2] = component, number or '' end
end
return reply.found(samples, numbers, page[1])
