-- Nudges: a worker is told once that a decision may be needed, and not again before a pass has begun.
-- @writes nudge nudged

local is_sent

-- Send a nudge. Only the first call before a pass counts, so a script that leaves work for a decision may always call this.
function nudges.send()
  if is_sent then return end
  is_sent = true
  if redis.call('SET', keys.nudge(), 'pending', 'NX', 'EX', 5) then
    redis.pcall('PUBLISH', keys.nudged(), '')  -- without the right to publish the worker waits for the tick
  end
end

-- Clear the nudge: a pass begins now.
function nudges.clear()
  redis.call('DEL', keys.nudge())
end

-- Mark that a trigger found the job lock taken: its holder has to look once more.
function nudges.mark_missed()
  redis.call('SET', keys.nudge(), 'missed', 'EX', 5)
end

-- Suppress nudges for a while, also those sent already; ticks are not affected.
function nudges.suppress()
  redis.call('SET', keys.nudge(), 'suppressed', 'EX', 5)
end

function nudges.state_is(state)
  return redis.call('GET', keys.nudge()) == state
end
