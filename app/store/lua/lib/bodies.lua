-- The bytes of kept bodies of requests and tasks: the difference of all that were ever saved and all that were deleted. Both numbers
-- only grow, so that the audit sees whether anything changed meanwhile.
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
