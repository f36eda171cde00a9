-- A request as a workspace copy needs it, with its entries in other structures. These change without an event only in ways that
-- decisions do not depend on: a prolonged lease, a reported checkpoint.
-- @use lanes
-- @reads lane lane_walltimes leases pool_allocation_records pool_allocations pool_walltime_ends request requests
-- @reads waiting

-- Return nil if the request is gone; a missing value is the empty text.
function request_copies.read(id)
  local raw, fields = redis.call('HGETALL', keys.request(id)), {}
  if #raw == 0 then return nil end
  for i = 1, #raw, 2 do fields[raw[i]] = raw[i + 1] end
  local poll_deadline, lease_end_ms = redis.call('ZSCORE', keys.waiting(), id), redis.call('ZSCORE', keys.leases(), id)
  local row = {id, raw, redis.call('ZSCORE', keys.requests(), id) or '', poll_deadline or '', lease_end_ms or '', '', '', '', '', '', ''}
  if poll_deadline then
    row[6] = lanes.name(fields.component, fields.preemptible == '0', fields.resources)
    row[7] = redis.call('ZSCORE', keys.lane(row[6]), id) or ''
    row[8] = redis.call('ZSCORE', keys.lane_walltimes(row[6]), id) or ''
  elseif lease_end_ms and (fields.pool or '') ~= '' then
    row[6] = fields.pool
    row[9] = redis.call('ZSCORE', keys.pool_allocations(fields.pool), id) or ''
    row[10] = redis.call('HGET', keys.pool_allocation_records(fields.pool), id) or ''
    row[11] = redis.call('ZSCORE', keys.pool_walltime_ends(fields.pool), id) or ''
  end
  return row
end
