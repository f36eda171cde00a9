-- The size of the kept bodies of requests and tasks: the bytes ever saved less the bytes ever deleted. Both numbers only grow, so the
-- audit can tell whether one changed meanwhile.
-- @writes meta

function bodies.save(bytes) redis.call('HINCRBY', keys.meta(), 'saved_bytes', bytes) end

function bodies.delete(bytes)
  if tonumber(bytes) > 0 then redis.call('HINCRBY', keys.meta(), 'deleted_bytes', bytes) end
end

-- Count a body as deleted and saved anew: it belongs to another record now, and an audit under way may have read either.
function bodies.move(bytes)
  bodies.delete(bytes)
  bodies.save(bytes)
end
