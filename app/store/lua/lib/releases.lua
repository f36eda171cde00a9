-- Giving an allocation back, by its holder under its fence.
-- @use grants preemptions requests run_time_stats
-- @keys leases

-- `released` and the request, also when it was released before under this fence; `vacated` is to leave when told to, or when just
-- called back; `lost` is that the process which did a task's work is gone; `not_leaving` and status; `no_task`; `stale_fence`,
-- status and reason; `not_found`.
function releases.release(id, fence, outcome)
  local request = requests.load(id)
  if not request then return 'not_found', '', '' end
  if outcome == 'lost' and not request.task then return 'no_task', '', '' end
  local gone = outcome == 'lost' and (request.status == states.preempting or request.left_fence == fence)
  local vacated = outcome == 'vacated' or gone
  if vacated and request.left_fence == fence and request.left_by == 'vacated' then return 'released', requests.flat(request), '' end
  if not vacated and request.status == states.released and request.fence == fence then return 'released', requests.flat(request), '' end
  if outcome == 'lost' and request.reason == 'worker_lost' and request.fence == fence then return 'released', requests.flat(request), '' end
  if request.fence ~= fence or not redis.call('ZSCORE', keys.leases(), id) then
    return 'stale_fence', request.status, request.reason or ''
  end
  local fields = {}
  if vacated then
    if request.status ~= states.preempting and not preemptions.accept_late_exit(request) then return 'not_leaving', request.status, '' end
    preemptions.complete(request, 'preempted', 'vacated')
    return 'released', requests.flat(request), ''
  end
  local ended = outcome ~= 'lost' and request.status == states.allocated and request.pool ~= ''
  if ended then run_time_stats.add(request) end
  grants.take_back(request)
  if outcome == 'lost' then requests.finish(request, states.expired, 'expired', {'reason', 'worker_lost'}, fields)
  else requests.finish(request, states.released, 'released', {'outcome', outcome}, fields) end
  requests.save(request, fields)
  return 'released', requests.flat(request), ''
end
