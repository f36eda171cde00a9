-- Write the columns that a grant, a release or a hold changes at every account of a path.
-- @use amounts
-- @writes group policy pool

local function set_column(account, column, key, number, fields)
  account[column][key] = number
  fields[#fields + 1] = column .. ':' .. key
  fields[#fields + 1] = amounts.format(number)
end

-- Count units of a share key that leave the stack of an account: allocations above them may come into share.
local function count_stack_exits(account, pool, key, units, fields)
  if account ~= pool and pool.reserving_accounts[key] then set_column(account, 'stack_exits', key, (account.stack_exits[key] or 0) + units, fields) end
end

-- Raise the highest use of a key since the last usage sample of the pool, in the same write as the use. The name of the field
-- has no colon, so that scripts of an older version do not read it as a column.
local function raise_peak(account, pool, key, fields)
  local name, used = 'peak.' .. key, account.used[key]
  if not pool.limit[key] or used <= tonumber(account.fields[name] or 0) then return end
  account.fields[name] = amounts.format(used)
  fields[#fields + 1] = name
  fields[#fields + 1] = account.fields[name]
end

-- Add to one or two columns (`used`, `fixed`, `patience_held`) of every account of a path.
function account_updates.add(path, units, columns, sign)
  local pool, counts_exits, raises_peaks = path[#path], sign < 0 and columns[1] == 'used', sign > 0 and columns[1] == 'used'
  for i, account in ipairs(path) do
    local fields = {}
    for _, key in ipairs(units.keys) do
      for _, column in ipairs(columns) do set_column(account, column, key, (account[column][key] or 0) + sign * units.of[key], fields) end
      if counts_exits then count_stack_exits(account, pool, key, units.of[key], fields) end
      if raises_peaks and (i == 1 or i == #path) then raise_peak(account, pool, key, fields) end
    end
    redis.call('HSET', account.key, unpack(fields))
  end
end

-- Count the units of a victim as stack exits: a preempting allocation is in no stack.
function account_updates.leave_stacks(path, units)
  for i = 1, #path - 1 do
    local fields = {}
    for _, key in ipairs(units.keys) do count_stack_exits(path[i], path[#path], key, units.of[key], fields) end
    if #fields > 0 then redis.call('HSET', path[i].key, unpack(fields)) end
  end
end

-- Count stack exits in the groups when a non-preemptible allocation moves below all others in the stack of its policy. In a group,
-- up to the reserved share of the policy may become borrowed, and allocations above it may come into the share of the group.
function account_updates.shift_group_stacks(path)
  local policy = path[1]
  for i = 2, #path - 1 do
    local fields = {}
    for key, reserved in pairs(policy.reserved) do
      if reserved > 0 then set_column(path[i], 'stack_exits', key, (path[i].stack_exits[key] or 0) + reserved, fields) end
    end
    if #fields > 0 then redis.call('HSET', path[i].key, unpack(fields)) end
  end
end

-- Add to the units that victim holds keep at an account. `changes`: key → units.
function account_updates.add_victim_held(account, changes)
  local fields = {}
  for key, units in pairs(changes) do set_column(account, 'victim_held', key, (account.victim_held[key] or 0) + units, fields) end
  if #fields > 0 then redis.call('HSET', account.key, unpack(fields)) end
end
