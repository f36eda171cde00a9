-- Update the settings of the workspace; an empty one returns to its default.
-- @writes meta
-- @args settings
-- @reply set

for name, value in pairs(cjson.decode(args.settings)) do
  if value ~= '' then redis.call('HSET', keys.meta(), name, value) else redis.call('HDEL', keys.meta(), name) end
end
return reply.set()
