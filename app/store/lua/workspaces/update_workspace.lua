-- Update the settings of the workspace; an empty one returns to its default. Limits of a component are the setting `component:<name>`.
-- @writes meta
-- @args settings
-- @reply set
-- @reply too_many components

local settings, component_count = cjson.decode(args.settings), 0
local function is_component(name) return string.sub(name, 1, 10) == 'component:' end
for _, name in ipairs(redis.call('HKEYS', keys.meta())) do
  if is_component(name) and not settings[name] then component_count = component_count + 1 end
end
for name, value in pairs(settings) do
  if is_component(name) and value ~= '' then component_count = component_count + 1 end
end
if component_count > const.MAX_COMPONENT_LIMITS then return reply.too_many(component_count) end

for name, value in pairs(settings) do
  if value ~= '' then redis.call('HSET', keys.meta(), name, value) else redis.call('HDEL', keys.meta(), name) end
end
return reply.set()
