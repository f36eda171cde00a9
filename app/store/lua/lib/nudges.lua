-- Nudges: one message tells a worker that a decision may be needed. No second message is sent before a reconcile pass has
-- begun.
-- @writes nudge nudged

local is_sent

-- Send a nudge. Before a reconcile pass only the first call sends a message, so every script that needs a decision may call
-- this.
function nudges.send()
  if is_sent then return end
  is_sent = true
  if redis.call('SET', keys.nudge(), 'pending', 'NX', 'EX', 5) then
    redis.pcall('PUBLISH', keys.nudged(), '')  -- without the right to publish the worker waits for the tick
  end
end

-- Clear the nudge: a reconcile pass begins now.
function nudges.clear()
  redis.call('DEL', keys.nudge())
end

-- Mark that a nudge or a tick found the job lock taken: the holder of the lock has to run one more pass.
function nudges.mark_missed()
  redis.call('SET', keys.nudge(), 'missed', 'EX', 5)
end

-- Suppress nudges for a while, sent ones included. Ticks are not affected.
function nudges.suppress()
  redis.call('SET', keys.nudge(), 'suppressed', 'EX', 5)
end

function nudges.state_is(state)
  return redis.call('GET', keys.nudge()) == state
end
