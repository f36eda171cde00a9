-- Lanes that cross between share and borrowing when the use of their policy changes: each gets its new place in the queue. The
-- number of lanes that cross at once has no bound. If the work budget is used up, the pool grants nothing until the remaining
-- lanes have moved. For each policy and key, the first lane moves without budget, because reading many pools may have used it
-- up.
-- @use accounts lanes share_sides unfinished_items work_budget
-- @writes pool

local function move_all(path, kind, key)
  local is_first = true
  while true do
    local crossed = share_sides.next_crossed(path, kind, key)
    if not crossed then return true end
    if not is_first and work_budget.is_used_up() then return false end
    is_first = false
    share_sides.move(path, kind, key, crossed)
    lanes.reposition(path, lanes.open(crossed.id))
  end
end

-- Move the lanes of a policy that crossed with a change of these units.
function crossings.move(path, units, kind)
  local policy, pool = path[1], path[#path]
  for _, key in ipairs(units.keys) do
    if (policy.reserved[key] or 0) > 0 and not move_all(path, kind, key) then
      pool.fields.unsettled = '1'
      redis.call('HSET', pool.key, 'unsettled', '1')
      unfinished_items.note(pool, 'crossing', policy.component .. '|' .. kind .. '|' .. key)
    end
  end
end

-- Move the rest of the lanes that crossed. Return whether all are done.
function crossings.resume(pool)
  return unfinished_items.resume(pool, 'crossing', function(item)
    local component, kind, key = string.match(item, '^([^|]+)|([pf])|(.+)$')
    local path = accounts.path(pool.name, component)
    return not path or move_all(path, kind, key)
  end)
end
