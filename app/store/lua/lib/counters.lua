-- What the metrics count, in the workspace, as only here is known what happened once.
-- @use amounts
-- @keys counters

local BUCKETS = {1, 5, 15, 30, 60, 120, 300, 600, 1800}  -- seconds
local WAITS = {10, 100, 1000, 5000, 15000, 60000, 300000, 900000, 3600000, 14400000, 86400000}  -- ms
local LOOKS = {5, 10, 25, 50, 100, 250, 500, 1000, 5000}  -- ms

local of_pools  -- pool → what is counted of it, looked up once in a call: very many pools may go in one

-- Looks are not counted by pools.
local function remember(what)
  local pool = string.sub(what, 1, 6) ~= 'looks|' and string.match(what, '^[^|]+|([^|]*)')
  if not pool then return end
  of_pools[pool] = of_pools[pool] or {}
  table.insert(of_pools[pool], what)
end

function counters.add(what, by)
  redis.call('HINCRBY', keys.counters(), what, by or 1)
  if of_pools then remember(what) end
end

-- A checkpoint on the way out took this long.
function counters.add_checkpoint(pool, took_ms)
  for _, most in ipairs(BUCKETS) do
    if took_ms <= most * 1000 then counters.add('checkpoints|' .. pool .. '|' .. most) end
  end
  counters.add('checkpoints|' .. pool .. '|inf')
  counters.add('checkpoints_ms|' .. pool, amounts.format(took_ms))
end

-- The number of the first bound that is not exceeded.
local function bucket(bounds, ms)
  local at = 1
  while bounds[at] and ms > bounds[at] do at = at + 1 end
  return at
end

-- Somebody was granted in a pool (or in none, the empty name) after so long in the queue.
function counters.add_wait(pool, ms)
  counters.add('waits|' .. pool .. '|' .. bucket(WAITS, ms))
  if ms > 0 then counters.add('waits_ms|' .. pool, amounts.format(ms)) end
end

-- Somebody came into a state; submissions and grants are counted already.
function counters.add_transition(request, from, to)
  if not from or to == states.allocated then return end
  counters.add('moves|' .. (request.pool or '') .. '|' .. to .. '|' .. (request.reason or ''))
end

-- A look of a worker has taken so long.
function counters.add_reconcile(took_ms)
  counters.add('reconciles')
  counters.add('reconcile_ms', took_ms)
  counters.add('looks|' .. bucket(LOOKS, tonumber(took_ms)))
end

-- A pool goes, and what was counted of it.
function counters.delete_pool(pool)
  if not of_pools then
    of_pools = {}
    for _, what in ipairs(redis.call('HKEYS', keys.counters())) do remember(what) end
  end
  for _, what in ipairs(of_pools[pool] or {}) do redis.call('HDEL', keys.counters(), what) end
  of_pools[pool] = nil
end
