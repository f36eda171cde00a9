-- The tree over the needs of a slot: the first lane that fits a room is found in as many reads as the need has digits.
-- A need is written in hexadecimal. The root `.` has a member for each number of digits, `3.` one for each first digit of the
-- needs with three digits, `3.1a` one for each last digit. The score of a member is the least queue score below it.
-- @use amounts
-- @reads pool_parking
-- @writes pool_parking_tree

parking_tree.ROOT = '.'

local function children(pool, slot, node)
  return redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, node), 0, -1, 'WITHSCORES')
end

-- Write the score of a member, or remove the member (nil). Return whether anything changed.
local function write(pool, slot, node, member, score)
  local node_key = keys.pool_parking_tree(pool.name, slot, node)
  return (score and redis.call('ZADD', node_key, 'CH', score, member) or redis.call('ZREM', node_key, member)) == 1
end

-- Bring the tree up to date after a lane of this need came, went or got another score.
function parking_tree.update(pool, slot, need)
  local digits = string.format('%x', tonumber(need))
  local score = redis.call('ZRANGE', keys.pool_parking(pool.name, slot, need), 0, 0, 'WITHSCORES')[2]
  for depth = #digits, 1, -1 do
    local node = #digits .. '.' .. string.sub(digits, 1, depth - 1)
    if not write(pool, slot, node, string.sub(digits, depth, depth), score) then return end
    score = redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, node), 0, 0, 'WITHSCORES')[2]
  end
  write(pool, slot, parking_tree.ROOT, #digits, score)
end

-- Return the member with the least score, and the score; if `is_allowed` is given, only of the members that it selects.
local function least(members, is_allowed)
  local best, best_score = nil, nil
  for i = 1, #members, 2 do
    local score = tonumber(members[i + 1])
    if (not best_score or score < best_score) and (not is_allowed or is_allowed(members[i])) then best, best_score = members[i], score end
  end
  return best, best_score
end

-- Return the need of the first lane of a subtree: from a node down to a leaf.
local function first_need(pool, slot, length, prefix_digits)
  while #prefix_digits < length do
    prefix_digits = prefix_digits .. redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, length .. '.' .. prefix_digits), 0, 0)[1]
  end
  return amounts.format(tonumber(prefix_digits, 16))
end

-- True if any lane is in the slot.
function parking_tree.any(pool, slot) return redis.call('EXISTS', keys.pool_parking_tree(pool.name, slot, parking_tree.ROOT)) == 1 end

-- Return the first lane of a slot whose need fits the room, and its stored score; nil if none fits.
function parking_tree.first(pool, slot, room)
  if room < 0 then return nil end
  local room_digits = string.format('%x', room)
  local length, walked = #room_digits, ''
  local shorter, best_score = least(children(pool, slot, parking_tree.ROOT), function(digit_count) return tonumber(digit_count) < length end)
  local best_length, best_prefix = tonumber(shorter), ''
  for depth = 1, length do
    local digit = string.sub(room_digits, depth, depth)
    local members, is_last = children(pool, slot, length .. '.' .. walked), depth == length
    local smaller, score = least(members, function(member) return member < digit or is_last and member == digit end)
    if smaller and (not best_score or score < best_score) then best_length, best_prefix, best_score = length, walked .. smaller, score end
    walked = walked .. digit
    if #members == 0 then break end
  end
  if not best_length then return nil end
  local need = first_need(pool, slot, best_length, best_prefix)
  local first = redis.call('ZRANGE', keys.pool_parking(pool.name, slot, need), 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

-- Return the smallest need of a slot, as text; nil if no lane is there.
function parking_tree.least_need(pool, slot)
  local function smallest(node)
    local best = nil
    for _, member in ipairs(redis.call('ZRANGE', keys.pool_parking_tree(pool.name, slot, node), 0, -1)) do
      if not best or tonumber(member, 16) < tonumber(best, 16) then best = member end
    end
    return best
  end
  local length, digits = smallest(parking_tree.ROOT), ''
  while length and #digits < tonumber(length) do
    local digit = smallest(length .. '.' .. digits)
    if not digit then return nil end  -- the tree is broken, which the audit reports
    digits = digits .. digit
  end
  return length and amounts.format(tonumber(digits, 16))
end
