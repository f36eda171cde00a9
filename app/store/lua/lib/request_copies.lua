-- A request as a workspace copy needs it, with its entries in other structures. Some of these entries change without an event:
-- a prolonged lease, a deferred deadline. No decision depends on such a change.
-- @use accounts lanes parking
-- @reads hold leases pool_allocation_records pool_allocations pool_holds pool_victims pool_walltime_ends preemption_deadlines request requests
-- @reads waiting

local function score(key, id) return redis.call('ZSCORE', key, id) or '' end
local function field(key, id) return redis.call('HGET', key, id) or '' end

-- Return a request: 1. id 2. fields 3. number of its submission 4. lane of a waiter, pool of an allocation. Of a waiter: 5. the time
-- (ms) up to which it waits, and of the owner of a victim hold 6. pool 7. kind of the hold 8. its fields. Of an allocation: 5. end
-- of its lease 6. fence 7. record 8. end of its walltime 9. the owner it leaves for 10. deadline of its preemption. An absent value is
-- empty. A request that is gone has no fields.
function request_copies.read(id)
  local raw, fields = redis.call('HGETALL', keys.request(id)), {}
  for i = 1, #raw, 2 do fields[raw[i]] = raw[i + 1] end
  if #raw == 0 then return {id, raw} end
  local row, deadline = {id, raw, score(keys.requests(), id)}, redis.call('ZSCORE', keys.waiting(), id)
  if deadline then
    row[4], row[5] = lanes.name(fields.component, fields.preemptible == '0', fields.resources, fields.shape), deadline
    local pool = fields.victim_hold_pool
    if pool then row[6], row[7], row[8] = pool, field(keys.pool_holds(pool), id), redis.call('HGETALL', keys.hold(pool, id)) end
    return row
  end
  local pool, lease_end_ms = fields.pool or '', score(keys.leases(), id)
  if lease_end_ms == '' then return row end
  row[4], row[5] = pool, lease_end_ms
  if pool == '' then return row end
  row[6], row[7] = score(keys.pool_allocations(pool), id), field(keys.pool_allocation_records(pool), id)
  row[8], row[9] = score(keys.pool_walltime_ends(pool), id), field(keys.pool_victims(pool), id)
  row[10] = score(keys.preemption_deadlines(), id)
  return row
end

-- Return the lanes of some rows, each once, with the pools that it is attached to: pool, constraint, need, and since when.
function request_copies.lanes(rows)
  local lane_rows, seen = {}, {}
  for _, row in ipairs(rows) do
    local is_waiter = row[4] and string.find(row[4], '|', 1, true)
    local lane = is_waiter and not seen[row[4]] and lanes.open(row[4])
    if lane then
      local attached = {}
      for _, name in ipairs(lanes.pools(lane)) do
        local constraint, need, since = parking.find(accounts.pool(name), lane.id)
        if constraint then attached[#attached + 1] = {name, constraint, need, since} end
      end
      seen[lane.id] = true
      lane_rows[#lane_rows + 1] = {lane.id, attached}
    end
  end
  return lane_rows
end
