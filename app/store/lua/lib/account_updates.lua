-- Writing in the ledger: what a grant, a return or a hold changes at every account of a path.
-- @use amounts

local function put(account, column, key, number, fields)
  account[column][key] = number
  fields[#fields + 1] = column .. ':' .. key
  fields[#fields + 1] = amounts.format(number)
end

-- Units of a share key are in nobody's stack any more: what was borrowed above them may lie in a share now.
local function gone(account, pool, key, units, fields)
  if account ~= pool and pool.reserving_accounts[key] then put(account, 'stack_exits', key, (account.stack_exits[key] or 0) + units, fields) end
end

-- Add to one or two columns (`used`, `fixed`, `kept`) of every account of a path.
function account_updates.add(path, units, columns, sign)
  local back = sign < 0 and columns[1] == 'used'
  for _, account in ipairs(path) do
    local fields = {}
    for _, key in ipairs(units.keys) do
      for _, column in ipairs(columns) do put(account, column, key, (account[column][key] or 0) + sign * units.of[key], fields) end
      if back then gone(account, path[#path], key, units.of[key], fields) end
    end
    redis.call('HSET', account.key, unpack(fields))
  end
end

-- Somebody along a path is told to leave: it counts in no stack from now on.
function account_updates.leave_stacks(path, units)
  for i = 1, #path - 1 do
    local fields = {}
    for _, key in ipairs(units.keys) do gone(path[i], path[#path], key, units.of[key], fields) end
    if #fields > 0 then redis.call('HSET', path[i].key, unpack(fields)) end
  end
end

-- Somebody came below all others of its policy: there as much as its share may be borrowed that was not, and goes up in the groups'
-- stacks, so that what lay above it may lie in a group's share now.
function account_updates.shift_group_stacks(path)
  local policy = path[1]
  for i = 2, #path - 1 do
    local fields = {}
    for key, reserved in pairs(policy.reserved) do
      if reserved > 0 then put(path[i], 'stack_exits', key, (path[i].stack_exits[key] or 0) + reserved, fields) end
    end
    if #fields > 0 then redis.call('HSET', path[i].key, unpack(fields)) end
  end
end

-- What holds with victims keep at one account.
function account_updates.add_victim_held(account, key, by)
  local fields = {}
  put(account, 'victim_held', key, (account.victim_held[key] or 0) + by, fields)
  redis.call('HSET', account.key, unpack(fields))
end
