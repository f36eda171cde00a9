-- Requests: the ask as it came, the state it is in, and its story.
-- @use amounts clock counters outbox
-- @keys request events changed ended

local kept, flat = nil, {}  -- id → name and value in turn, of what was loaded, with what was written since behind

-- How many entries the stream of events keeps, about.
function requests.set_stream_length(events)
  kept = events
end

function requests.load(id)
  local raw = redis.call('HGETALL', keys.request(id))
  if #raw == 0 then return nil end
  local request = {id = id}
  flat[id] = raw
  for i = 1, #raw, 2 do request[raw[i]] = raw[i + 1] end
  return request
end

-- How long it may wait in the queue unasked for; what has begun may wait for ever to go on.
function requests.poll_timeout_s(request)
  return request.begun ~= '1' and request.queue_ttl_s or nil
end

-- Whose a request is, and the amounts it asks.
function requests.component_and_units(id)
  local two = redis.call('HMGET', keys.request(id), 'component', 'resources')
  return two[1], amounts.decode(two[2])
end

-- All that a decision has to know of an allocation, in one line.
function requests.allocation_record(request)
  local saved = tonumber(request.checkpointed_ms)
  return table.concat({request.fence, request.component, request.preemptible == '0' and 'f' or 'p', request.class, request.checkpoint,
    request.checkpoint_minutes or '-', request.walltime_s or '-', request.granted_ms,
    saved and saved >= tonumber(request.granted_ms) and request.checkpointed_ms or '-', request.preemption_group or '-', request.resources}, ' ')
end

-- The same value for several names, among the news of a move.
function requests.set_all(news, names, value)
  for _, name in ipairs(names) do
    news[#news + 1] = name
    news[#news + 1] = value
  end
end

-- What will be written: name and value in turn, so that one HSET does it.
function requests.set(request, fields, name, value)
  request[name] = value
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end

-- Words as one text, `-` for none; those at the end go without saying, as every waiter bears a line.
local function line(words)
  while words[#words] == '-' do words[#words] = nil end
  return table.concat(words, ' ')
end

local function word(text) return text and text ~= '' and text or '-' end

-- An entry of the stream and a line of the story; `more` is the rank of who it happens to, and of whom on account of which.
local function tell(request, from, to, event, more, fields)
  local entry = redis.call('XADD', keys.events(), 'MAXLEN', '~', kept, '*', 'event', event, 'request', request.id,
    'at', amounts.format(clock.now), 'component', request.component, 'resources', request.resources, 'from', from or '', 'to', to,
    'pool', more and more.pool or request.pool or '', 'fence', request.fence or '', 'reason', more and more.reason or request.reason or '', 'by', more and more.by or request.preempted_by or '',
    unpack(more and {'rank', more.rank, 'by_rank', more.by_rank or '', 'victims', more.victims or ''} or {}))
  redis.pcall('PUBLISH', keys.changed(request.id), to)  -- who may not publish is slower to be heard, and no change fails for it
  local told = (tonumber(request.events) or 0) + 1
  requests.set(request, fields, 'events', amounts.format(told))
  requests.set(request, fields, 'e' .. amounts.format(told), line({entry, event, amounts.format(clock.now), word(more and more.pool or request.pool),
    word(more and more.reason or request.reason), word(more and more.by or request.preempted_by), word(more and more.rank), word(more and more.by_rank), word(more and more.victims)}))
  if told > 64 then redis.call('HDEL', keys.request(request.id), 'e' .. amounts.format(told - 63)) end
end

-- Note a transition: its event on the stream, and state, story and `news` (name, value in turn) among the fields to write.
function requests.transition(request, to, event, news, fields, more)
  local from = request.status
  if from and not string.find(transitions, ' ' .. from .. '>' .. to .. ' ', 1, true) then error('no way from ' .. from .. ' to ' .. to) end
  for i = 1, #news, 2 do requests.set(request, fields, news[i], news[i + 1]) end
  tell(request, from, to, event, more, fields)
  requests.set(request, fields, 'status', to)
  counters.add_transition(request, from, to)
end

function requests.save(request, fields)
  redis.call('HSET', keys.request(request.id), unpack(fields))
  local loaded = flat[request.id]
  for i = 1, loaded and #fields or 0 do loaded[#loaded + 1] = fields[i] end
end

-- Something that is no transition but belongs to its story.
function requests.add_event(request, event, news, more)
  local fields = {}
  for i = 1, #news, 2 do requests.set(request, fields, news[i], news[i + 1]) end
  tell(request, request.status, request.status, event, more, fields)
  requests.save(request, fields)
end

-- Into a final state, with its reason and when. Who was told to leave, and ends otherwise, was not preempted.
function requests.finish(request, to, event, news, fields, more)
  local now, all = amounts.format(clock.now), {}
  if request.preempted_by and to ~= states.preempted then
    requests.set_all(all, {'reason', 'preempted_by', 'directive', 'deadline_ms'}, '')
  end
  for _, one in ipairs(news) do all[#all + 1] = one end
  requests.set_all(all, {'ended_ms'}, now)
  requests.transition(request, to, event, all, fields, more)
  redis.call('ZADD', keys.ended(), now, request.id)
  if request.task then outbox.request_ended(request) end
end

-- A request that was loaded, whole and as one flat list, for an answer; of a name that comes twice the last counts.
function requests.flat(request)
  local whole = flat[request.id]
  whole[#whole + 1] = 'id'
  whole[#whole + 1] = request.id
  return whole
end
