-- A request as a copy of the workspace needs it: with all that is kept of it alone elsewhere. None of that changes without an event in
-- a way that decisions go by: a lease may be prolonged, or a checkpoint reported.
-- @use lanes
-- @keys lane lane_walltimes leases pool_allocations pool_walltime_ends pool_allocation_records request requests waiting

-- Nil if it is there no more; what it does not have is the empty text.
function request_copies.read(id)
  local has, at = redis.call('HGETALL', keys.request(id)), {}
  if #has == 0 then return nil end
  for i = 1, #has, 2 do at[has[i]] = has[i + 1] end
  local waits, lives = redis.call('ZSCORE', keys.waiting(), id), redis.call('ZSCORE', keys.leases(), id)
  local row = {id, has, redis.call('ZSCORE', keys.requests(), id) or '', waits or '', lives or '', '', '', '', '', '', ''}
  if waits then
    row[6] = lanes.name(at.component, at.preemptible == '0', at.resources)
    row[7] = redis.call('ZSCORE', keys.lane(row[6]), id) or ''
    row[8] = redis.call('ZSCORE', keys.lane_walltimes(row[6]), id) or ''
  elseif lives and (at.pool or '') ~= '' then
    row[6] = at.pool
    row[9] = redis.call('ZSCORE', keys.pool_allocations(at.pool), id) or ''
    row[10] = redis.call('HGET', keys.pool_allocation_records(at.pool), id) or ''
    row[11] = redis.call('ZSCORE', keys.pool_walltime_ends(at.pool), id) or ''
  end
  return row
end
