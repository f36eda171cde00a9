-- How long allocations have run, of each policy, counted in steps of which four double it: what estimates are made from.
-- @use amounts clock
-- @keys pool_run_times

local STEPS, MOST = 4, 2000  -- at so many all are halved, so that what is long ago counts less and less

-- The longest first, and what a half is too much for one is there for the next: so the longest stays, and no kind gains weight.
local function halve(key)
  local raw, steps, count, left, carry = redis.call('HGETALL', key), {}, {}, 0, 1
  for i = 1, #raw, 2 do
    if raw[i] ~= 'all' then
      steps[#steps + 1] = raw[i]
      count[raw[i]] = tonumber(raw[i + 1])
    end
  end
  table.sort(steps, function(one, other) return tonumber(one) > tonumber(other) end)
  for _, step in ipairs(steps) do
    local sum = count[step] + carry
    local half = math.floor(sum / 2)
    carry, left = sum % 2, left + half
    if half > 0 then redis.call('HSET', key, step, amounts.format(half)) else redis.call('HDEL', key, step) end
  end
  redis.call('HSET', key, 'all', amounts.format(left))
end

-- Its holder gives it back, as it has done what it was there for.
function run_time_stats.add(request)
  local key, ran_s = keys.pool_run_times(request.pool, request.component), math.max(0, clock.now - tonumber(request.granted_ms)) / 1000
  local step = math.floor(STEPS * math.log(1 + ran_s) / math.log(2))
  redis.call('HINCRBY', key, amounts.format(step), 1)
  if redis.call('HINCRBY', key, 'all', 1) >= MOST then halve(key) end
end

-- A policy goes, and with it what is known of it.
function run_time_stats.delete(pool, component) redis.call('DEL', keys.pool_run_times(pool, component)) end
