-- Limits of the workspace, and of subjects: tokens and components with limits of their own. Existing cardinalities tell the numbers
-- of the workspace. Only the waiters of a subject are listed in keys of its own, each after its lane.
-- @use amounts leases
-- @reads delayed lane lanes meta waiting
-- @writes limited_lanes limited_subjects limited_waiting

local function bound(text, default)
  if text == 'none' then return math.huge end
  return tonumber(text or default)
end

local function refusal(subject, name, limit, present)
  return {subject, name, amounts.format(limit), amounts.format(present)}
end

-- Return a limit of the workspace; infinity for none.
function limits.of_workspace(name, default) return bound(redis.call('HGET', keys.meta(), name), default) end

-- Read what an admission needs of the workspace, in one command.
function limits.read_workspace(component)
  local values = redis.call('HMGET', keys.meta(), 'seq', 'fence', 'unmanaged', 'saved_bytes', 'deleted_bytes', 'max_running',
    'max_bytes', 'max_waiting', 'max_shapes', 'component:' .. component)
  return {
    seq = tonumber(values[1] or 0), fence = tonumber(values[2] or 0), unmanaged = values[3],
    saved_bytes = tonumber(values[4] or 0), deleted_bytes = tonumber(values[5] or 0),
    max_running = bound(values[6], const.MAX_RUNNING), max_bytes = bound(values[7], const.MAX_BYTES),
    max_waiting = bound(values[8], const.MAX_WAITING), max_shapes = bound(values[9], const.MAX_SHAPES),
    component_limits = values[10],
  }
end

-- Return the limits that a component has of its own, as a subject; nil if it has none.
function limits.component_subject(component, text)
  if not text then return nil end
  local max_waiting, max_shapes = string.match(text, '^(%S+) (%S+)$')
  return {name = 'component/' .. component, max_waiting = tonumber(max_waiting), max_shapes = tonumber(max_shapes)}
end

-- Return a refusal if no new request may be admitted, whatever would become of it; nil if it may.
function limits.admission_refusal(workspace, bytes)
  local running, saved = leases.count(), workspace.saved_bytes - workspace.deleted_bytes
  if running >= workspace.max_running then return refusal('workspace', 'max_running', workspace.max_running, running) end
  if saved + bytes > workspace.max_bytes then return refusal('workspace', 'max_bytes', workspace.max_bytes, saved) end
end

-- Return a refusal if the workspace may have no further shape; nil if it may, or if the lane has waiters.
function limits.shape_refusal(workspace, lane)
  local shapes = redis.call('SCARD', keys.lanes())
  local is_full = shapes >= workspace.max_shapes and redis.call('EXISTS', keys.lane(lane.id)) == 0
  return is_full and refusal('workspace', 'max_shapes', workspace.max_shapes, shapes) or nil
end

local function subject_refusal(subject, lane)
  local waiting = subject.max_waiting and redis.call('ZCARD', keys.limited_waiting(subject.name))
  if waiting and waiting >= subject.max_waiting then return refusal(subject.name, 'max_waiting', subject.max_waiting, waiting) end
  local shapes = subject.max_shapes and redis.call('SCARD', keys.limited_lanes(subject.name))
  if shapes and shapes >= subject.max_shapes and redis.call('SISMEMBER', keys.limited_lanes(subject.name), lane.id) == 0 then
    return refusal(subject.name, 'max_shapes', subject.max_shapes, shapes)
  end
end

-- Return a refusal if a new request may not wait; nil if it may. A delayed task counts as waiting.
function limits.wait_refusal(workspace, lane, subjects)
  local waiting = redis.call('ZCARD', keys.waiting()) + redis.call('ZCARD', keys.delayed())
  if waiting >= workspace.max_waiting then return refusal('workspace', 'max_waiting', workspace.max_waiting, waiting) end
  local first_refusal = limits.shape_refusal(workspace, lane)
  for _, subject in ipairs(subjects) do first_refusal = first_refusal or subject_refusal(subject, lane) end
  return first_refusal
end

-- Count a waiter, or a delayed task, for the subjects it is limited by: their names, with blanks between.
function limits.count(limited_by, lane, id)
  for subject in string.gmatch(limited_by or '', '%S+') do
    redis.call('ZADD', keys.limited_waiting(subject), 0, lane.id .. '\n' .. id)
    if redis.call('SADD', keys.limited_lanes(subject), lane.id) == 1 then redis.call('SADD', keys.limited_subjects(), subject) end
  end
end

-- True if a subject has waiters in a lane.
function limits.has_waiters(subject, lane_id)
  return redis.call('ZRANGEBYLEX', keys.limited_waiting(subject), '[' .. lane_id .. '\n', '(' .. lane_id .. '\11', 'LIMIT', 0, 1)[1] ~= nil
end

-- Delete a lane of a subject that has no waiters there any more.
function limits.forget_lane(subject, lane_id)
  redis.call('SREM', keys.limited_lanes(subject), lane_id)
  if redis.call('EXISTS', keys.limited_lanes(subject)) == 0 then redis.call('SREM', keys.limited_subjects(), subject) end
end

-- Count a waiter, or a delayed task, no longer.
function limits.uncount(limited_by, lane, id)
  for subject in string.gmatch(limited_by or '', '%S+') do
    redis.call('ZREM', keys.limited_waiting(subject), lane.id .. '\n' .. id)
    if not limits.has_waiters(subject, lane.id) then limits.forget_lane(subject, lane.id) end
  end
end

-- Return the subjects that should count a waiter and do not.
function limits.missing(limited_by, lane, id)
  local subjects = {}
  for subject in string.gmatch(limited_by or '', '%S+') do
    local is_counted = redis.call('ZSCORE', keys.limited_waiting(subject), lane.id .. '\n' .. id)
      and redis.call('SISMEMBER', keys.limited_lanes(subject), lane.id) == 1 and redis.call('SISMEMBER', keys.limited_subjects(), subject) == 1
    if not is_counted then subjects[#subjects + 1] = subject end
  end
  return subjects
end
