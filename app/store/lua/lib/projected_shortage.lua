-- What somebody will lack once it has its hold and all who have to leave have left: so the same shortage is never paid twice.
-- @use accounts requests victim_holds
-- @keys pool_victims

local function sum(sums, path, units)
  for _, account in ipairs(path) do
    for _, key in ipairs(units.keys) do
      local where = account.id .. '|' .. key
      sums[where] = (sums[where] or 0) + units.of[key]
    end
  end
end

-- By account and key what all who are leaving will bring; nil if one of them leaves for nobody and is yet to be judged.
function projected_shortage.units_of_victims(pool)
  local sums, raw = {}, redis.call('HGETALL', keys.pool_victims(pool.name))
  for i = 1, #raw, 2 do
    if raw[i + 1] == '-' then return nil end
    local component, units = requests.component_and_units(raw[i])
    if component then sum(sums, accounts.path(pool.name, component), units) end
  end
  return sums
end

-- What the holds beside one (its place in their order; nil is behind all) will take from it at an account.
function projected_shortage.units_of_other_holds(pool, at, account, key)
  local total = 0
  for other, hold in ipairs(victim_holds.list(pool)) do
    local amount = other ~= at and hold.on[account.key] and hold.lane.units.of[key]
    if amount and (not at or other < at) then total = total + amount
    elseif amount then
      total = total + math.min(amount, victim_holds.units_freed(hold, account, key) + victim_holds.units_expected(hold, account, key))
    end
  end
  return total
end

-- A key of an account that has to have room: what is needed there, and what is left.
function projected_shortage.room(account, key, need, left)
  return {account = account, key = key, need = need, left = left, brings = {}}
end

-- Room for a lane beside the other holds when all have left, at every account of its path.
function projected_shortage.rooms(path, lane, at, leaving)
  local pool, rooms = path[#path], {}
  for _, account in ipairs(path) do
    for _, key in ipairs(lane.units.keys) do
      local left = accounts.room('limit', account, pool, key) + (leaving[account.id .. '|' .. key] or 0)
      rooms[#rooms + 1] = projected_shortage.room(account, key, lane.units.of[key], left - projected_shortage.units_of_other_holds(pool, at, account, key))
    end
  end
  return rooms
end

-- These leave as well (path and ask of each).
function projected_shortage.add_victims(rooms, victims)
  for _, room in ipairs(rooms) do
    for i, victim in ipairs(victims) do
      room.brings[i] = 0
      for _, account in ipairs(victim.path) do
        if account == room.account then room.brings[i] = victim.units.of[room.key] or 0 end
      end
      room.left = math.min(const.EXACT, room.left + room.brings[i])
    end
  end
end

-- Whether there is room everywhere, were one of the victims (its number) to stay.
function projected_shortage.fits(rooms, but)
  for _, room in ipairs(rooms) do
    if room.left - (room.brings[but] or 0) < room.need then return false end
  end
  return true
end
