-- Nudges: a worker is told when a decision may be needed, and told once: not again before somebody has begun to look.
-- @keys nudge nudged

local asked

-- Whoever leaves work for a decision behind says so; it may be said at every turn, as only the first counts.
function nudges.send()
  if asked then return end
  asked = true
  if redis.call('SET', keys.nudge(), 'asked', 'NX', 'EX', 5) then
    redis.pcall('PUBLISH', keys.nudged(), '')  -- who may not publish waits for the tick
  end
end

-- Here was looked, up to this moment.
function nudges.clear()
  redis.call('DEL', keys.nudge())
end

-- A task that came for the lease and found it taken: its holder has to look once more.
function nudges.mark_missed()
  redis.call('SET', keys.nudge(), 'missed', 'EX', 5)
end

-- No more of it for a while, nor of what is sent already: only ticks do not mind.
function nudges.suppress()
  redis.call('SET', keys.nudge(), 'hushed', 'EX', 5)
end

function nudges.state_is(state)
  return redis.call('GET', keys.nudge()) == state
end
