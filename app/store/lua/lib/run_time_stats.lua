-- Run times of the allocations of each policy, counted in logarithmic steps: the source of estimates.
-- @use amounts clock
-- @writes pool_run_times

local STEPS_PER_DOUBLING, MAX_COUNT = 4, 2000  -- at this count all are halved: recent run times count more

-- Halve all counts, the longest run times first. The remainder of an odd count is carried to the next shorter step. The carry
-- begins with 1, so that the longest run time stays.
local function halve(key)
  local raw, steps, counts, remaining, carry = redis.call('HGETALL', key), {}, {}, 0, 1
  for i = 1, #raw, 2 do
    if raw[i] ~= 'all' then
      steps[#steps + 1] = raw[i]
      counts[raw[i]] = tonumber(raw[i + 1])
    end
  end
  table.sort(steps, function(one, other) return tonumber(one) > tonumber(other) end)
  for _, step in ipairs(steps) do
    local sum = counts[step] + carry
    local half = math.floor(sum / 2)
    carry, remaining = sum % 2, remaining + half
    if half > 0 then redis.call('HSET', key, step, amounts.format(half)) else redis.call('HDEL', key, step) end
  end
  redis.call('HSET', key, 'all', amounts.format(remaining))
end

-- Count the run time of an allocation that its holder released.
function run_time_stats.add(request)
  local key, ran_s = keys.pool_run_times(request.pool, request.component), math.max(0, clock.now - tonumber(request.granted_ms)) / 1000
  local step = math.floor(STEPS_PER_DOUBLING * math.log(1 + ran_s) / math.log(2))
  redis.call('HINCRBY', key, amounts.format(step), 1)
  if redis.call('HINCRBY', key, 'all', 1) >= MAX_COUNT then halve(key) end
end

-- Delete the run times of a policy.
function run_time_stats.delete(pool, component) redis.call('DEL', keys.pool_run_times(pool, component)) end
