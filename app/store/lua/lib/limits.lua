-- Limits of the workspace, and of subjects: tokens and components with limits of their own. The numbers of the workspace are
-- cardinalities of its keys; `waiter_counts` has the numbers of the subjects.
-- @use amounts leases
-- @reads delayed lane lanes limited_lanes limited_waiting meta waiting

local function bound(text, default)
  if text == 'none' then return math.huge end
  return tonumber(text or default)
end

local function refusal(subject, name, limit, present)
  return {subject, name, amounts.format(limit), amounts.format(present)}
end

-- Return a limit of the workspace; infinity for none.
function limits.of_workspace(name, default) return bound(redis.call('HGET', keys.meta(), name), default) end

-- Read the fields of the workspace that every admission needs, in one command.
function limits.read_workspace(component)
  return redis.call('HMGET', keys.meta(), 'seq', 'fence', 'saved_bytes', 'deleted_bytes', 'max_running', 'max_bytes', 'component:' .. component, 'templates')
end

-- Return the limits that a component has of its own, as a subject; nil if it has none.
function limits.component_subject(component, text)
  if not text then return nil end
  local max_waiting, max_shapes = string.match(text, '^(%S+) (%S+)$')
  return {name = 'component/' .. component, max_waiting = tonumber(max_waiting), max_shapes = tonumber(max_shapes)}
end

-- Return a refusal if no new request may be admitted, neither granted nor queued; else nil. `saved` and `deleted` are bytes.
function limits.admission_refusal(saved, deleted, bytes, max_running, max_bytes)
  local running, most_running, most_bytes = leases.count(), bound(max_running, const.MAX_RUNNING), bound(max_bytes, const.MAX_BYTES)
  if running >= most_running then return refusal('workspace', 'max_running', most_running, running) end
  if saved - deleted + bytes > most_bytes then return refusal('workspace', 'max_bytes', most_bytes, saved - deleted) end
end

local function shape_refusal(lane, max_shapes)
  local shapes, most = redis.call('SCARD', keys.lanes()), bound(max_shapes, const.MAX_SHAPES)
  if shapes >= most and redis.call('EXISTS', keys.lane(lane.id)) == 0 then return refusal('workspace', 'max_shapes', most, shapes) end
end

-- Return a refusal if the workspace may have no further shape; nil if it may, or if the lane has waiters.
function limits.shape_refusal(lane) return shape_refusal(lane, redis.call('HGET', keys.meta(), 'max_shapes')) end

local function subject_refusal(subject, lane)
  local waiting = subject.max_waiting and redis.call('ZCARD', keys.limited_waiting(subject.name))
  if waiting and waiting >= subject.max_waiting then return refusal(subject.name, 'max_waiting', subject.max_waiting, waiting) end
  local shapes = subject.max_shapes and redis.call('SCARD', keys.limited_lanes(subject.name))
  if shapes and shapes >= subject.max_shapes and redis.call('SISMEMBER', keys.limited_lanes(subject.name), lane.id) == 0 then
    return refusal(subject.name, 'max_shapes', subject.max_shapes, shapes)
  end
end

-- Return a refusal if a new request may not wait; nil if it may. A delayed task counts as waiting.
function limits.wait_refusal(lane, subjects)
  local values = redis.call('HMGET', keys.meta(), 'max_waiting', 'max_shapes')
  local waiting, most = redis.call('ZCARD', keys.waiting()) + redis.call('ZCARD', keys.delayed()), bound(values[1], const.MAX_WAITING)
  if waiting >= most then return refusal('workspace', 'max_waiting', most, waiting) end
  local first_refusal = shape_refusal(lane, values[2])
  for _, subject in ipairs(subjects) do first_refusal = first_refusal or subject_refusal(subject, lane) end
  return first_refusal
end
