-- Release an allocation, by its holder under its fence.
-- @use grants leases preemptions requests run_time_stats

-- Return `released` and the request, also if it was released before under this fence. The outcome `vacated` is the exit of a
-- victim, or of an allocation that was just reprieved. The outcome `lost` says that the process of a task is gone. `exit_code`:
-- of the work, nil if it is not known. Refusals: `not_leaving` and status, `no_task`, `stale_fence` with status and reason,
-- `not_found`.
function releases.release(id, fence, outcome, exit_code)
  local request = requests.load(id)
  if not request then return 'not_found', '', '' end
  if outcome == 'lost' and not request.task then return 'no_task', '', '' end
  local worker_lost = outcome == 'lost' and (request.status == states.preempting or request.left_fence == fence)
  local exits = outcome == 'vacated' or worker_lost
  if exits and request.left_fence == fence and request.left_by == 'vacated' then return 'released', requests.flat(request), '' end
  if not exits and request.status == states.released and request.fence == fence then return 'released', requests.flat(request), '' end
  if outcome == 'lost' and request.reason == 'worker_lost' and request.fence == fence then return 'released', requests.flat(request), '' end
  if not leases.is_held(request, fence) then return 'stale_fence', request.status, request.reason or '' end
  local fields = {}
  if exits then
    if request.status ~= states.preempting and not preemptions.accept_late_exit(request) then return 'not_leaving', request.status, '' end
    preemptions.complete(request, 'preempted', 'vacated')
    return 'released', requests.flat(request), ''
  end
  local counts_run_time = outcome ~= 'lost' and request.status == states.allocated and request.pool ~= ''
  grants.take_back(request)
  if counts_run_time then run_time_stats.add(request) end  -- not before the release, because a server out of memory must accept the first write
  if outcome == 'lost' then requests.finish(request, states.expired, 'expired', {'reason', 'worker_lost'}, fields)
  else requests.finish(request, states.released, 'released', {'outcome', outcome, exit_code and 'exit_code', exit_code}, fields) end
  requests.save(request, fields)
  return 'released', requests.flat(request), ''
end
