-- Walks through the parking tree of a slot: find several lanes at once, check the tree, delete it.
-- @use amounts parking_tree work_budget
-- @writes pool_parking pool_parking_needs pool_parking_tree

local function children(pool, slot, node)
  return redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, node), 0, -1, 'WITHSCORES')
end

-- Return up to `count` lanes of a slot whose need fits the room and whose stored score is at most `highest`, least scores first in
-- each subtree.
function parking_subtrees.list(pool, slot, room, highest, count)
  local ids = {}
  local function add_leaf(digits)
    local parking_key = keys.pool_parking(pool.name, slot, amounts.format(tonumber(digits, 16)))
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', parking_key, '-inf', highest, 'LIMIT', 0, count - #ids)) do ids[#ids + 1] = id end
  end
  local function add_subtree(length, digits)
    if #digits > 0 and tonumber(digits .. string.rep('0', length - #digits), 16) > room then return end
    if #digits == length then return add_leaf(digits) end
    local members = children(pool, slot, length .. '.' .. digits)
    for i = 1, #members, 2 do
      if #ids < count and tonumber(members[i + 1]) <= highest then add_subtree(length, digits .. members[i]) end
    end
  end
  local lengths = children(pool, slot, parking_tree.ROOT)
  for i = 1, #lengths, 2 do
    if #ids < count and tonumber(lengths[i + 1]) <= highest then add_subtree(tonumber(lengths[i]), '') end
  end
  return ids
end

-- Return a node above this need whose score is not the least score below it; nil if there is none.
function parking_subtrees.broken_node(pool, slot, need)
  local digits = string.format('%x', tonumber(need))
  local score = redis.call('ZRANGE', keys.pool_parking(pool.name, slot, need), 0, 0, 'WITHSCORES')[2]
  for depth = #digits, 0, -1 do
    local node = depth == 0 and parking_tree.ROOT or #digits .. '.' .. string.sub(digits, 1, depth - 1)
    local member = depth == 0 and tostring(#digits) or string.sub(digits, depth, depth)
    local stored = redis.call('ZSCORE', keys.pool_parking_tree(pool.name, slot, node), member)
    if not stored or tonumber(stored) ~= tonumber(score) then return node end
    score = redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, node), 0, 0, 'WITHSCORES')[2]
  end
end

-- Delete one leaf of a slot, and the nodes that are then empty. The leaf is found by the first digit of each node.
local function clear_leaf(pool, slot)
  local length = redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, parking_tree.ROOT), 0, 0)[1]
  local digits = ''
  while #digits < tonumber(length) do
    local digit = redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, length .. '.' .. digits), 0, 0)[1]
    if not digit then break end  -- a damaged tree
    digits = digits .. digit
  end
  if #digits == tonumber(length) then redis.call('UNLINK', keys.pool_parking(pool.name, slot, amounts.format(tonumber(digits, 16)))) end
  while #digits > 0 do
    local node_key = keys.pool_parking_tree(pool.name, slot, length .. '.' .. string.sub(digits, 1, -2))
    redis.call('ZREM', node_key, string.sub(digits, -1))
    if redis.call('EXISTS', node_key) == 1 then return end
    digits = string.sub(digits, 1, -2)
  end
  redis.call('ZREM', keys.pool_parking_tree(pool.name, slot, parking_tree.ROOT), length)
end

-- Delete a slot. Return false if the work budget ended first.
local function clear_slot(pool, slot)
  while parking_tree.any(pool, slot) do
    clear_leaf(pool, slot)
    if work_budget.is_used_up() then return false end
  end
  return true
end

-- Delete the slots of a constraint with their trees, in parts. Return false if the work budget ended first. Only the audit needs this: a
-- slot without lanes has no tree.
function parking_subtrees.clear(pool, constraint, backfill_prefix)
  local needs_key = keys.pool_parking_needs(pool.name, constraint)
  for component in function() return redis.call('ZRANGE', needs_key, 0, 0)[1] end do
    for _, slot in ipairs({constraint .. '@' .. component, backfill_prefix .. constraint .. '@' .. component}) do
      if not clear_slot(pool, slot) then return false end
    end
    redis.call('ZREM', needs_key, component)
    if work_budget.is_used_up() then return false end
  end
  return clear_slot(pool, constraint) and clear_slot(pool, backfill_prefix .. constraint)
end
