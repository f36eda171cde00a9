-- The waiters of the subjects: tokens and components with limits of their own. An entry is the lane, then the waiter.
-- @writes limited_lanes limited_subjects limited_waiting

-- Count a waiter or delayed task for its subjects. `limited_by`: the names of the subjects, separated by blanks.
function waiter_counts.count(limited_by, lane, id)
  for subject in string.gmatch(limited_by or '', '%S+') do
    redis.call('ZADD', keys.limited_waiting(subject), 0, lane.id .. '\n' .. id)
    if redis.call('SADD', keys.limited_lanes(subject), lane.id) == 1 then redis.call('SADD', keys.limited_subjects(), subject) end
  end
end

-- True if a subject has waiters in a lane.
function waiter_counts.has_waiters(subject, lane_id)
  return redis.call('ZRANGEBYLEX', keys.limited_waiting(subject), '[' .. lane_id .. '\n', '(' .. lane_id .. '\11', 'LIMIT', 0, 1)[1] ~= nil
end

-- Delete a lane of a subject that has no waiters there any more.
function waiter_counts.forget_lane(subject, lane_id)
  redis.call('SREM', keys.limited_lanes(subject), lane_id)
  if redis.call('EXISTS', keys.limited_lanes(subject)) == 0 then redis.call('SREM', keys.limited_subjects(), subject) end
end

-- Subtract a waiter or delayed task from the waiters of its subjects.
function waiter_counts.uncount(limited_by, lane, id)
  for subject in string.gmatch(limited_by or '', '%S+') do
    redis.call('ZREM', keys.limited_waiting(subject), lane.id .. '\n' .. id)
    if not waiter_counts.has_waiters(subject, lane.id) then waiter_counts.forget_lane(subject, lane.id) end
  end
end
