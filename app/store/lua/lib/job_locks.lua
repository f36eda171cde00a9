-- Locks of periodic jobs. A lock expires by itself. Redis keeps its end as an absolute time.
-- @writes job_lock

local TOLERANCE_MS = 60000  -- a worker of another version may take a lock for longer

-- Return the token that holds a lock, unless it is the given token. A lock that ends later than any worker sets it is
-- shortened: the clock was set back after it was taken.
function job_locks.other_holder(job, token, ttl_ms)
  local holder = redis.call('GET', keys.job_lock(job))
  if not holder or holder == token then return nil end
  if redis.call('PTTL', keys.job_lock(job)) > tonumber(ttl_ms) + TOLERANCE_MS then redis.call('PEXPIRE', keys.job_lock(job), ttl_ms) end
  return holder
end
