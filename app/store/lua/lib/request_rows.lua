-- Rows of a list: a request with the end of its lease.
-- @use requests
-- @keys leases

-- Return name and value in turn.
function request_rows.build(request)
  local row = requests.flat(request)
  if request.status ~= states.allocated and request.status ~= states.preempting or not request.lease_s then return row end
  row[#row + 1] = 'lapses'
  row[#row + 1] = redis.call('ZSCORE', keys.leases(), request.id) or ''
  return row
end
