-- A change that answers otherwise when done twice remembers that it was done, for a caller whose first answer was lost.
-- @keys operation

local REMEMBERED_S = 600

function operations.done(id)
  return redis.call('EXISTS', keys.operation(id)) == 1
end

function operations.note(id)
  redis.call('SET', keys.operation(id), 'done', 'EX', REMEMBERED_S)
end
