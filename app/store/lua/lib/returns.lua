-- Giving an allocation back, by its holder under its fence.
-- @use grants requests
-- @keys live

-- `released` and the request, also when it was released before under this fence; `stale_fence`, status and reason; `not_found`.
function returns.take(id, fence, outcome)
  local request = requests.load(id)
  if not request then return 'not_found', '', '' end
  if request.status == states.released and request.fence == fence then return 'released', requests.flat(request), '' end
  if request.fence ~= fence or not redis.call('ZSCORE', keys.live(), id) then
    return 'stale_fence', request.status, request.reason or ''
  end
  local fields = {}
  grants.back(request)
  requests.finish(request, states.released, 'released', {'outcome', outcome}, fields)
  requests.write(request, fields)
  return 'released', requests.flat(request), ''
end
