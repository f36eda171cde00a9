-- Rows of a list: a request with the end of its lease, or the time of its last poll.
-- @use leases polls

-- Return name and value in turn.
function request_rows.build(request)
  local row = polls.flat(request)
  if request.status ~= states.allocated and request.status ~= states.preempting or not request.lease_s then return row end
  row[#row + 1] = 'lapses'
  row[#row + 1] = leases.end_ms(request)
  return row
end
