-- Deletion of ended requests: after their retention, and the oldest beyond a limit.
-- @use amounts bodies
-- @writes ended rejected request requests

function retention.delete(ids)
  local bytes = 0
  for _, id in ipairs(ids) do
    local values = redis.call('HMGET', keys.request(id), 'bytes', 'status')
    bytes = bytes + tonumber(values[1] or 0)
    redis.call('DEL', keys.request(id))
    redis.call('ZREM', keys.requests(), id)
    redis.call('ZREM', keys.ended(), id)
    if values[2] == states.rejected or not values[2] then redis.call('ZREM', keys.rejected(), id) end
  end
  bodies.delete(amounts.format(bytes))
end
