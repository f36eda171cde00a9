-- A change that answers otherwise when done twice remembers its answer, for a caller whose first one was lost.
-- @keys operation

local REMEMBERED_S = 600

-- What the operation answered when it was done; nil if it was not.
function operation_replies.find(id)
  return redis.call('GET', keys.operation(id)) or nil
end

function operation_replies.save(id, answer)
  redis.call('SET', keys.operation(id), answer or 'done', 'EX', REMEMBERED_S)
end
