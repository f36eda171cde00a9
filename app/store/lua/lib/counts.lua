-- What the metrics count, in the workspace, as only here is known what happened once.
-- @use amounts
-- @keys counts

local BUCKETS = {1, 5, 15, 30, 60, 120, 300, 600, 1800}  -- seconds

function counts.add(what, by)
  redis.call('HINCRBY', keys.counts(), what, by or 1)
end

-- A checkpoint on the way out took this long.
function counts.checkpoint(pool, took_ms)
  for _, most in ipairs(BUCKETS) do
    if took_ms <= most * 1000 then counts.add('checkpoints|' .. pool .. '|' .. most) end
  end
  counts.add('checkpoints|' .. pool .. '|inf')
  counts.add('checkpoints_ms|' .. pool, amounts.whole(took_ms))
end
