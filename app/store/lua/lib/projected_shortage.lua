-- The shortage of a waiter after it has its hold and all victims have left. So no units are preempted twice for one shortage.
-- @use accounts victim_holds victims

-- Return the units that the other holds will take at an account; `index`: the position of the waiter's hold; nil: behind all
-- holds.
function projected_shortage.units_of_other_holds(pool, index, account, key)
  local total = 0
  for other_index, hold in ipairs(victim_holds.list(pool)) do
    local amount = other_index ~= index and hold.account_keys[account.key] and hold.lane.units.of[key]
    if amount and (not index or other_index < index) then total = total + amount
    elseif amount then
      total = total + math.min(amount, victim_holds.units_freed(hold, account, key) + victim_holds.units_expected(hold, account, key))
    end
  end
  return total
end

-- Return a record of the units that are needed at an account: key, need, free units.
function projected_shortage.room(account, key, need, free)
  return {account = account, key = key, need = need, left = free, brings = {}}
end

-- Return these records of a lane for every account of its path, after all victims have left and with the other holds kept.
function projected_shortage.rooms(path, lane, index)
  local pool, rooms = path[#path], {}
  for _, account in ipairs(path) do
    for _, key in ipairs(lane.units.keys) do
      local free = accounts.room('limit', account, pool, key) + victims.units_leaving(account, key)
      rooms[#rooms + 1] = projected_shortage.room(account, key, lane.units.of[key], free - projected_shortage.units_of_other_holds(pool, index, account, key))
    end
  end
  return rooms
end

-- Add the units that further victims free. `units`: `account|key` → units.
function projected_shortage.add_units(rooms, units)
  for _, room in ipairs(rooms) do
    room.left = math.min(const.MAX_AMOUNT, room.left + tonumber(units[room.account.id .. '|' .. room.key] or 0))
  end
end

-- Add the units of allocations that will leave (path and units of each).
function projected_shortage.add_victims(rooms, allocations)
  for _, room in ipairs(rooms) do
    for i, victim in ipairs(allocations) do
      room.brings[i] = 0
      for _, account in ipairs(victim.path) do
        if account == room.account then room.brings[i] = victim.units.of[room.key] or 0 end
      end
      room.left = math.min(const.MAX_AMOUNT, room.left + room.brings[i])
    end
  end
end

-- True if no record lacks units; `kept_victim` is the index of a victim that stays.
function projected_shortage.fits(rooms, kept_victim)
  for _, room in ipairs(rooms) do
    if room.left - (room.brings[kept_victim] or 0) < room.need then return false end
  end
  return true
end
