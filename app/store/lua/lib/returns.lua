-- Giving an allocation back, by its holder under its fence.
-- @use departures grants requests
-- @keys live

-- `released` and the request, also when it was released before under this fence; `vacated` is to leave when told to, or when just
-- called back; `not_leaving` and status; `stale_fence`, status and reason; `not_found`.
function returns.take(id, fence, outcome)
  local request = requests.load(id)
  if not request then return 'not_found', '', '' end
  local vacated = outcome == 'vacated'
  if vacated and request.left_fence == fence and request.left_by == 'vacated' then return 'released', requests.flat(request), '' end
  if not vacated and request.status == states.released and request.fence == fence then return 'released', requests.flat(request), '' end
  if request.fence ~= fence or not redis.call('ZSCORE', keys.live(), id) then
    return 'stale_fence', request.status, request.reason or ''
  end
  local fields = {}
  if vacated then
    if request.status ~= states.preempting and not departures.crossed(request) then return 'not_leaving', request.status, '' end
    departures.leave(request, 'preempted', 'vacated')
    return 'released', requests.flat(request), ''
  end
  grants.back(request)
  requests.finish(request, states.released, 'released', {'outcome', outcome}, fields)
  requests.write(request, fields)
  return 'released', requests.flat(request), ''
end
