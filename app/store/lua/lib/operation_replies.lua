-- Replies of operations that would reply differently if repeated. They are kept for a caller that lost the first reply.
-- @writes operation

local REMEMBERED_S = 600

-- Return the reply of a finished operation; nil if there is none.
function operation_replies.find(id)
  return redis.call('GET', keys.operation(id)) or nil
end

function operation_replies.save(id, answer)
  redis.call('SET', keys.operation(id), answer or 'done', 'EX', REMEMBERED_S)
end
