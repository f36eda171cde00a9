-- The filter of a list of requests: a request matches if it meets all conditions.
-- @use component_patterns
-- @reads leases pool_queue request waiting

local MEMBERS_PER_CALL = 500
local DEFAULT_TYPE = 'orchestrator/'

-- Return a filter from the JSON of the codec. `wants_…`: the kinds of states that match. `needs_fields`: a match needs a read of the request.
function request_filters.decode(text)
  local filter = cjson.decode(text)
  local wanted = filter.status
  filter.wants_queued = not wanted or wanted[states.queued]
  filter.wants_holding = not wanted or wanted[states.allocated] or wanted[states.preempting]
  filter.wants_ended = not wanted
  for status in pairs(wanted or {}) do
    if status ~= states.queued and status ~= states.allocated and status ~= states.preempting then filter.wants_ended = true end
  end
  if filter.text then filter.text = string.lower(filter.text) end
  filter.needs_fields = wanted or filter.kind or filter.name or filter.pool or filter.labels or filter.text or filter.visible
  return filter
end

local function begins_or_ends(id, fragment)
  return string.sub(id, 1, #fragment) == fragment or string.sub(id, -#fragment) == fragment
end

-- Add to a set the ids that are members of a sorted set.
local function add_members(set, key, ids)
  for first = 1, #ids, MEMBERS_PER_CALL do
    local last = math.min(#ids, first + MEMBERS_PER_CALL - 1)
    for i, score in ipairs(redis.call('ZMSCORE', key, unpack(ids, first, last))) do
      if score then set[ids[first + i - 1]] = true end
    end
  end
end

-- Return the set of the ids that may match, judged by the id and by the sets of live requests. No request is read.
function request_filters.candidates(filter, ids)
  local with_fragment, queued, holding, candidates = {}, {}, {}, {}
  for _, id in ipairs(ids) do
    if not filter.id or begins_or_ends(id, filter.id) then with_fragment[#with_fragment + 1] = id end
  end
  local wants_all = filter.wants_queued and filter.wants_holding and filter.wants_ended
  if not wants_all then
    add_members(queued, keys.waiting(), with_fragment)
    add_members(holding, keys.leases(), with_fragment)
  end
  for _, id in ipairs(with_fragment) do
    candidates[id] = wants_all or queued[id] and filter.wants_queued or holding[id] and filter.wants_holding
      or not queued[id] and not holding[id] and filter.wants_ended
  end
  return candidates
end

local function contains(text, part) return string.find(string.lower(text), part, 1, true) ~= nil end

-- True if the id, the name, the component or a label (`key=value`) contains the text. The default type of a component counts only
-- if the text has a type.
local function has_text(text, id, request)
  local component = request.component
  if not string.find(text, '/', 1, true) and string.sub(component, 1, #DEFAULT_TYPE) == DEFAULT_TYPE then
    component = string.sub(component, #DEFAULT_TYPE + 1)
  end
  if contains(id, text) or contains(request.name, text) or contains(component, text) then return true end
  for key, value in pairs(request.labels) do
    if contains(key .. '=' .. value, text) then return true end
  end
  return false
end

local function has_labels(wanted, labels)
  for key, value in pairs(wanted) do
    if labels[key] ~= value then return false end
  end
  return true
end

-- True if the request is, or was, allocated in the pool, or waits in its queue.
local function is_of_pool(pool, id, request_pool, status)
  return request_pool == pool or status == states.queued and redis.call('ZSCORE', keys.pool_queue(pool), id) ~= false
end

-- Return the status of a request if it matches, else nil. If the filter needs no fields, the request is not read, and the status is empty.
function request_filters.status_of_match(filter, id)
  if not filter.needs_fields then return '' end
  local values = redis.call('HMGET', keys.request(id), 'status', 'component', 'pool', 'name', 'labels')
  local status, component = values[1], values[2]
  if not status or filter.status and not filter.status[status] then return nil end
  local kind, name = string.match(component, '^([^/]*)/(.*)$')
  if filter.kind and kind ~= filter.kind or filter.name and name ~= filter.name then return nil end
  if filter.pool and not is_of_pool(filter.pool, id, values[3], status) then return nil end
  if filter.visible and not component_patterns.include(filter.visible, component) then return nil end
  if not filter.labels and not filter.text then return status end
  local request = {component = component, name = values[4] or '', labels = values[5] and cjson.decode(values[5]) or {}}
  if filter.labels and not has_labels(filter.labels, request.labels) then return nil end
  if filter.text and not has_text(filter.text, id, request) then return nil end
  return status
end
