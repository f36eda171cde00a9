-- Read the settings of the workspace, and the use of its limits: in total, and by component with limits of its own.
-- @use leases
-- @reads delayed ended lanes limited_lanes limited_waiting meta pools waiting
-- @reply found settings use components

local settings, components = redis.call('HGETALL', keys.meta()), {}
local numbers = redis.call('HMGET', keys.meta(), 'policies', 'saved_bytes', 'deleted_bytes')
for i = 1, #settings, 2 do
  local component = string.match(settings[i], '^component:(.+)$')
  local subject = component and 'component/' .. component
  if subject then
    components[#components + 1] = {component, redis.call('ZCARD', keys.limited_waiting(subject)), redis.call('SCARD', keys.limited_lanes(subject))}
  end
end
return reply.found(settings, {
  'max_waiting', redis.call('ZCARD', keys.waiting()) + redis.call('ZCARD', keys.delayed()), 'max_shapes', redis.call('SCARD', keys.lanes()),
  'max_running', leases.count(), 'max_pools', redis.call('HLEN', keys.pools()), 'max_policies', numbers[1] or '0',
  'max_ended', redis.call('ZCARD', keys.ended()),
  'max_bytes', string.format('%.0f', tonumber(numbers[2] or 0) - tonumber(numbers[3] or 0)),
}, components)
