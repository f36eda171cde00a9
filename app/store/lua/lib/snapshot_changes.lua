-- The rows of a snapshot that changed since a change number: the id of the newest event, and the number of the newest change
-- without an event.
-- @use pool_changes snapshot_rows
-- @reads events

-- Return the present change number of a pool.
function snapshot_changes.number(pool_name)
  local newest = redis.call('XREVRANGE', keys.events(), '+', '-', 'COUNT', 1)
  return newest[1] and newest[1][1] or '0-0', pool_changes.last(pool_name)
end

-- Return the values of an event by name.
local function event_fields(entry)
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  return fields
end

-- Read the present rows that the first `most` events and the first `most` other changes after a change number name.
-- Return nil if the changes are not kept any more. Else: the change number up to which the rows are complete, whether more follow,
-- and the rows. An event names its request, the owner of a hold, and in this pool the accounts on the path of its component.
function snapshot_changes.read(pool, event, number, most)
  if event ~= '0-0' and not redis.call('XRANGE', keys.events(), event, event)[1] then return nil end
  local members = pool_changes.list(pool.name, number, most)
  if not members then return nil end
  local rows, seen, request_ids = snapshot_rows.new(pool.name), {}, {}
  local function add_request(id)
    if id == '' or seen[id] then return end
    seen[id] = true
    request_ids[#request_ids + 1] = id
    rows.add_allocation(id)
  end
  local entries = redis.call('XRANGE', keys.events(), '(' .. event, '+', 'COUNT', most)
  for _, entry in ipairs(entries) do
    local fields = event_fields(entry)
    add_request(fields.request)  -- an event of another pool may name a waiter of this one
    add_request(fields.by)
    if fields.pool == pool.name and not seen[fields.component] then
      rows.add_path(fields.component)
      seen[fields.component] = true
    end
    event = entry[1]
  end
  for i = 1, #members, 2 do
    local id = string.match(members[i], '^request:(.+)$')
    if id then add_request(id) else rows.add_account(members[i]) end
    number = tonumber(members[i + 1])
  end
  return {event = event, number = number, more = #entries == most or #members == 2 * most, rows = rows, request_ids = request_ids}
end
