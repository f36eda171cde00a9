-- Victim holds: capacity kept for a waiter whose victims are leaving. At every account of its owner's path, a hold keeps its
-- amount less the units that its victims still have to free. `victim_held` is the sum. It counts for requests without such a
-- hold.
-- @use account_updates accounts amounts clock dirty_pools lanes orphans pool_changes queue_order
-- @reads hold_victims
-- @writes hold pool pool_holds request

local holds_by_pool = {}  -- pool → its victim holds, in order

local function place(account, key) return account.id .. '|' .. key end

local function load_hold(pool, id, since, number)
  local component, preemptible, resources, shape, class, seq = unpack(redis.call('HMGET', keys.request(id), 'component', 'preemptible', 'resources', 'shape', 'class', 'seq'))
  if not component then return redis.call('HDEL', keys.pool_holds(pool.name), id) end  -- lost; the audit finds its units
  local lane = lanes.open(lanes.name(component, preemptible == '0', resources, shape or ''))
  local hold = {id = id, since = tonumber(since), number = tonumber(number), lane = lane, expected = {}, freed = {},
    path = accounts.path(pool.name, lane.component), lane_score = queue_order.lane_score(tonumber(class), tonumber(seq)), account_keys = {}}
  for _, account in ipairs(hold.path) do hold.account_keys[account.key] = true end
  local raw = redis.call('HGETALL', keys.hold(pool.name, id))
  for i = 1, #raw, 2 do
    local column, index = string.match(raw[i], '^(%l+)|(.+)$')
    hold[column][index] = tonumber(raw[i + 1])
  end
  return hold
end

-- Return the holds of a pool, in order.
function victim_holds.list(pool)
  local list = holds_by_pool[pool.name]
  if list then return list end
  list = {}
  holds_by_pool[pool.name] = list
  local raw = pool.fields.victim_holds and redis.call('HGETALL', keys.pool_holds(pool.name)) or {}
  for i = 1, #raw, 2 do
    local since, number = string.match(raw[i + 1], '^victims (%d+) (%d+)$')
    local hold = number and load_hold(pool, raw[i], since, number)
    if type(hold) == 'table' then list[#list + 1] = hold end
  end
  table.sort(list, function(one, other) return one.number < other.number end)
  return list
end

function victim_holds.find(pool, id)
  for index, hold in ipairs(victim_holds.list(pool)) do
    if hold.id == id then return hold, index end
  end
end

-- Return the units of a key that a hold keeps at an account of its owner's path.
function victim_holds.units_held(hold, account, key) return math.max(0, (hold.lane.units.of[key] or 0) - victim_holds.units_expected(hold, account, key)) end

function victim_holds.units_freed(hold, account, key) return hold.freed[place(account, key)] or 0 end
function victim_holds.units_expected(hold, account, key) return hold.expected[place(account, key)] or 0 end

local function add_to_count(pool, by)
  local now = (tonumber(pool.fields.victim_holds) or 0) + by
  pool.fields.victim_holds = now > 0 and amounts.format(now) or nil
  if now > 0 then redis.call('HSET', pool.key, 'victim_holds', amounts.format(now)) else redis.call('HDEL', pool.key, 'victim_holds') end
end

-- Open a hold for a waiter, still without victims.
function victim_holds.open(path, lane, request)
  local pool = path[#path]
  local list, number = victim_holds.list(pool), redis.call('HINCRBY', pool.key, 'last_hold_number', 1)
  redis.call('HSET', keys.pool_holds(pool.name), request.id, 'victims ' .. amounts.format(clock.now) .. ' ' .. amounts.format(number))
  redis.call('HSET', keys.request(request.id), 'victim_hold_pool', pool.name)
  request.victim_hold_pool = pool.name
  local hold = load_hold(pool, request.id, clock.now, number)
  list[#list + 1] = hold
  add_to_count(pool, 1)
  for _, account in ipairs(path) do
    account_updates.add_victim_held(account, lane.units.of)
  end
  return hold
end

-- Close a hold; its victims are orphaned. Return whether it had any.
function victim_holds.close(pool, hold)
  local _, index = victim_holds.find(pool, hold.id)
  table.remove(holds_by_pool[pool.name], index)
  add_to_count(pool, -1)
  for _, account in ipairs(hold.path) do
    local changes = {}
    for _, key in ipairs(hold.lane.units.keys) do changes[key] = -victim_holds.units_held(hold, account, key) end
    account_updates.add_victim_held(account, changes)
  end
  redis.call('HDEL', keys.pool_holds(pool.name), hold.id)
  redis.call('DEL', keys.hold(pool.name, hold.id))
  if redis.call('EXISTS', keys.request(hold.id)) == 1 then redis.call('HDEL', keys.request(hold.id), 'victim_hold_pool') end
  local changed = {'request:' .. hold.id}
  for i = 1, #hold.path - 1 do changed[i + 1] = hold.path[i].id end
  pool_changes.add(pool.name, changed)
  local has_victims = redis.call('EXISTS', keys.hold_victims(pool.name, hold.id)) == 1
  if has_victims then orphans.begin(pool, hold.id) end
  return has_victims
end

-- Add the units of a victim to the units that a hold still expects (1), or subtract them (-1). `has_freed`: they are free now.
function victim_holds.update_expected(pool, hold, path, units, sign, has_freed)
  local function set(fields, column, place_name, number)
    hold[column][place_name] = number
    fields[#fields + 1] = column .. '|' .. place_name
    fields[#fields + 1] = amounts.format(number)
  end
  for _, account in ipairs(path) do
    local fields, changes = {}, {}
    for _, key in ipairs(hold.account_keys[account.key] and units.keys or {}) do
      if hold.lane.units.of[key] then
        local place_name, before = place(account, key), victim_holds.units_held(hold, account, key)
        set(fields, 'expected', place_name, (hold.expected[place_name] or 0) + sign * units.of[key])
        if has_freed then set(fields, 'freed', place_name, (hold.freed[place_name] or 0) + units.of[key]) end
        local change = victim_holds.units_held(hold, account, key) - before
        if change ~= 0 then changes[key] = change end
        if change < 0 then dirty_pools.mark_constraints(pool, account, units, {'victim_held', 'patience_held'}) end
      end
    end
    if #fields > 0 then redis.call('HSET', keys.hold(pool.name, hold.id), unpack(fields)) end
    account_updates.add_victim_held(account, changes)
  end
end
