-- Requests: fields, state and events.
-- @use amounts clock counters outbox
-- @writes changed ended events rejected request

local stream_length, raw_by_id = nil, {}  -- id → name and value in turn as loaded, later writes appended

-- Set the approximate length of the event stream.
function requests.set_stream_length(events)
  stream_length = events
end

function requests.load(id)
  local raw = redis.call('HGETALL', keys.request(id))
  if #raw == 0 then return nil end
  local request = {id = id}
  raw_by_id[id] = raw
  for i = 1, #raw, 2 do request[raw[i]] = raw[i + 1] end
  return request
end

-- Return the seconds that a request may be queued without a poll; nil: no bound, as for work that has started.
function requests.queue_ttl_s(request)
  return request.begun ~= '1' and request.queue_ttl_s or nil
end

-- Return the component of a request, and its amounts.
function requests.component_and_units(id)
  local values = redis.call('HMGET', keys.request(id), 'component', 'resources')
  return values[1], amounts.decode(values[2])
end

-- Return all that the planner reads of an allocation, in one line.
function requests.allocation_record(request)
  local checkpointed_ms = tonumber(request.checkpointed_ms)
  return table.concat({request.fence, request.component, request.preemptible == '0' and 'f' or 'p', request.class, request.checkpoint,
    request.checkpoint_minutes or '-', request.walltime_s or '-', request.granted_ms,
    checkpointed_ms and checkpointed_ms >= tonumber(request.granted_ms) and request.checkpointed_ms or '-', request.preemption_group or '-', request.resources}, ' ')
end

-- Add the same value for several names to the changes of a transition.
function requests.set_all(changes, names, value)
  for _, name in ipairs(names) do
    changes[#changes + 1] = name
    changes[#changes + 1] = value
  end
end

-- Set a field of a request, and add it to the fields of the next save.
function requests.set(request, fields, name, value)
  request[name] = value
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end

-- Return the parts of an event as one line. An empty part is `-`. Empty parts at the end are left out to save memory.
local function event_line(parts)
  while parts[#parts] == '-' do parts[#parts] = nil end
  return table.concat(parts, ' ')
end

local function part(value) return value and value ~= '' and value or '-' end

-- Write an event to the stream and to the request. `details` are the ranks of a preemption, and what differs from the request.
local function write_event(request, from, to, event, details, fields, is_silent)
  local by = details and details.by or request.preempted_by or ''
  local entry = redis.call('XADD', keys.events(), 'MAXLEN', '~', stream_length, '*', 'event', event, 'request', request.id,
    'at', amounts.format(clock.now), 'component', request.component, 'resources', request.resources, 'from', from or '', 'to', to,
    'pool', details and details.pool or request.pool or '', 'fence', request.fence or '', 'reason', details and details.reason or request.reason or '', 'by', by, 'by_origin', by ~= '' and request.by_origin or '', 'origin', request.origin or '', 'outcome', request.outcome or '', 'exit_code', request.exit_code or '',
    unpack(details and {'rank', details.rank, 'by_rank', details.by_rank or '', 'victims', details.victims or ''} or {}))
  if not is_silent then redis.pcall('PUBLISH', keys.changed(request.id), to) end  -- without the right to publish, readers see the change later, and the transition does not fail
  local event_number = (tonumber(request.events) or 0) + 1
  requests.set(request, fields, 'events', amounts.format(event_number))
  requests.set(request, fields, 'e' .. amounts.format(event_number), event_line({entry, event, clock.now ~= tonumber(request.submitted_ms) and amounts.format(clock.now) or '-', part(details and details.pool or request.pool),
    part(details and details.reason or request.reason), part(by), part(details and details.rank), part(details and details.by_rank), part(details and details.victims), part(by ~= '' and request.by_origin)}))
  if event_number > 64 then redis.call('HDEL', keys.request(request.id), 'e' .. amounts.format(event_number - 63)) end
end

-- Make a transition: its event, and state and `changes` (name, value in turn) among the fields to save. Silent if another follows.
function requests.transition(request, to, event, changes, fields, details, is_silent)
  local from = request.status
  if from and not string.find(transitions, ' ' .. from .. '>' .. to .. ' ', 1, true) then error('no way from ' .. from .. ' to ' .. to) end
  for i = 1, #changes, 2 do requests.set(request, fields, changes[i], changes[i + 1]) end
  write_event(request, from, to, event, details, fields, is_silent)
  requests.set(request, fields, 'status', to)
  counters.add_transition(request, from, to)
end

function requests.save(request, fields)
  redis.call('HSET', keys.request(request.id), unpack(fields))
  local raw = raw_by_id[request.id]
  for i = 1, raw and #fields or 0 do raw[#raw + 1] = fields[i] end
end

-- Write an event that is not a transition.
function requests.add_event(request, event, changes, details)
  local fields = {}
  for i = 1, #changes, 2 do requests.set(request, fields, changes[i], changes[i + 1]) end
  write_event(request, request.status, request.status, event, details, fields)
  requests.save(request, fields)
end

-- Make the transition to a final state. A victim that ends in another way does not count as preempted.
function requests.finish(request, to, event, changes, fields, details)
  local now_ms, all_changes = amounts.format(clock.now), {}
  if request.preempted_by and to ~= states.preempted then requests.set_all(all_changes, {'reason', 'preempted_by', 'directive', 'deadline_ms'}, '') end
  for _, item in ipairs(changes) do all_changes[#all_changes + 1] = item end
  requests.set_all(all_changes, {'ended_ms'}, now_ms)
  requests.transition(request, to, event, all_changes, fields, details)
  redis.call('ZADD', keys.ended(), now_ms, request.id)
  if to == states.rejected then redis.call('ZADD', keys.rejected(), now_ms, request.id) end
  if request.task then outbox.request_ended(request) end
end

-- Return a loaded request as one flat list for a reply; of a name that comes twice the last counts.
function requests.flat(request)
  local whole = raw_by_id[request.id]
  whole[#whole + 1] = 'id'
  whole[#whole + 1] = request.id
  return whole
end
