-- Lanes that are no longer eligible in any pool: a template opens a pool for their waiters, or the waiters are rejected.
-- @use accounts eligibility lanes queue rechecks requests template_matches templates work_budget
-- @reads lane meta
-- @writes orphaned_lanes

local function is_enough(done, count) return done >= count or done > 0 and work_budget.is_used_up() end

-- Open the pools in which a template makes a policy for a lane that fits no other pool. Return whether there is such a pool.
local function open_template_pools(lane)
  if tonumber(redis.call('HGET', keys.meta(), 'templates') or 0) == 0 then return false end
  local pools = {}
  for _, name in ipairs(template_matches.pools(lane.component)) do
    local path = accounts.path(name, lane.component)
    if path[1].is_planned and not eligibility.refusal(path, lane) and not templates.refusal(path) then
      templates.write(path)
      pools[#pools + 1] = path[#path]
    elseif path[1].is_planned then accounts.forget(path[1].key) end
  end
  for _, pool in ipairs(pools) do rechecks.start(pool) end
  return #pools > 0
end

-- Reject up to `count` waiters of lanes that are eligible in no pool, not even in a pool that a template opens.
function lane_rejections.step(count)
  local count_done, is_first = 0, true
  for id in function() return redis.call('ZRANGE', keys.orphaned_lanes(), 0, 0)[1] end do
    if work_budget.is_used_up() and not is_first then return count_done, false end
    is_first = false
    local lane = lanes.open(id)
    local reasons = eligibility.refusals(lane)
    local request_id = reasons and redis.call('ZRANGE', keys.lane(id), 0, 0)[1]
    if not request_id then redis.call('ZREM', keys.orphaned_lanes(), id)
    elseif open_template_pools(lane) then
      redis.call('ZREM', keys.orphaned_lanes(), id)
      return count_done, false  -- the recheck of these pools is next
    else
      if is_enough(count_done, count) then return count_done, false end
      local request, fields = requests.load(request_id), {}
      queue.leave(request or {id = request_id}, lane)
      if request then  -- else it was lost
        requests.finish(request, states.rejected, 'rejected', {unpack(reasons)}, fields)
        requests.save(request, fields)
      end
      count_done = count_done + 1
    end
  end
  return count_done, true
end
