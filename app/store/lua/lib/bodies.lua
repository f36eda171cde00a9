-- The size of the kept bodies of requests and tasks: the bytes ever saved less the bytes ever deleted. Both numbers only grow,
-- so the audit detects a change during its run.
-- @writes meta

function bodies.save(bytes) redis.call('HINCRBY', keys.meta(), 'saved_bytes', bytes) end

function bodies.delete(bytes)
  if tonumber(bytes) > 0 then redis.call('HINCRBY', keys.meta(), 'deleted_bytes', bytes) end
end

-- Count a body as deleted and saved again when it moves to another record, because a running audit may have read either record.
function bodies.move(bytes)
  bodies.delete(bytes)
  bodies.save(bytes)
end
