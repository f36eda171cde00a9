-- Counters of the metrics: `name|pool|…`, with the labels of the metric in their order. Scripts write the counters, because
-- only a script can count each change exactly once.
-- @use amounts
-- @writes counters

local BUCKETS = {1, 5, 15, 30, 60, 120, 300, 600, 1800}  -- seconds
local WAITS = {10, 100, 1000, 5000, 15000, 60000, 300000, 900000, 3600000, 14400000, 86400000}  -- ms
local LOOKS = {5, 10, 25, 50, 100, 250, 500, 1000, 5000}  -- ms

local counters_by_pool  -- pool → its counters, read once per call: a declaration may delete very many pools

-- Add a counter to the index by pool. Counters of reconciles have no pool.
local function index_by_pool(counter)
  local pool = string.sub(counter, 1, 6) ~= 'looks|' and string.match(counter, '^[^|]+|([^|]*)')
  if not pool then return end
  counters_by_pool[pool] = counters_by_pool[pool] or {}
  table.insert(counters_by_pool[pool], counter)
end

function counters.add(counter, by)
  redis.call('HINCRBY', keys.counters(), counter, by or 1)
  if counters_by_pool then index_by_pool(counter) end
end

-- Count a checkpoint that a victim made, and how long it took.
function counters.add_checkpoint(pool, took_ms)
  for _, bound in ipairs(BUCKETS) do
    if took_ms <= bound * 1000 then counters.add('checkpoints|' .. pool .. '|' .. bound) end
  end
  counters.add('checkpoints|' .. pool .. '|inf')
  counters.add('checkpoints_ms|' .. pool, amounts.format(took_ms))
end

-- Return the number of the first bound that is not exceeded.
local function bucket(bounds, ms)
  local at = 1
  while bounds[at] and ms > bounds[at] do at = at + 1 end
  return at
end

-- Count a grant in a pool (the empty name for none), and its time in the queue.
function counters.add_wait(pool, ms)
  counters.add('waits|' .. pool .. '|' .. bucket(WAITS, ms))
  if ms > 0 then counters.add('waits_ms|' .. pool, amounts.format(ms)) end
end

-- Count a transition; submissions and grants are counted elsewhere.
function counters.add_transition(request, from, to)
  if not from or to == states.allocated then return end
  counters.add('moves|' .. (request.pool or '') .. '|' .. to .. '|' .. (request.reason or ''))
end

-- Count a reconcile and its duration.
function counters.add_reconcile(took_ms)
  counters.add('reconciles')
  counters.add('reconcile_ms', took_ms)
  counters.add('looks|' .. bucket(LOOKS, tonumber(took_ms)))
end

-- Delete the counters of a pool.
function counters.delete_pool(pool)
  if not counters_by_pool then
    counters_by_pool = {}
    for _, counter in ipairs(redis.call('HKEYS', keys.counters())) do index_by_pool(counter) end
  end
  for _, counter in ipairs(counters_by_pool[pool] or {}) do redis.call('HDEL', keys.counters(), counter) end
  counters_by_pool[pool] = nil
end
