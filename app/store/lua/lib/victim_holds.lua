-- Holds with victims: capacity kept for a waiter whose way others are clearing. Each keeps its amount, less what those leaving
-- for it still bring, at every account of its owner's path; `cleared` is the sum of them, which binds all who have no such hold.
-- @use account_updates accounts amounts clock dirty_pools lanes queue_order requests
-- @keys hold preemption_deadlines pool_holds pool_victims request

local listed = {}  -- pool → its holds with victims, in order

local function mark(account, key) return account.id .. '|' .. key end

local function open(pool, id, since, n)
  local request = requests.load(id)
  if not request then return redis.call('HDEL', keys.pool_holds(pool.name), id) end  -- lost; the audit finds what it kept
  local lane = lanes.of(request)
  local hold = {id = id, since = tonumber(since), n = tonumber(n), lane = lane, expected = {}, freed = {},
    path = accounts.path(pool.name, lane.component), inner = queue_order.lane_score(tonumber(request.class), tonumber(request.seq)), on = {}}
  for _, account in ipairs(hold.path) do hold.on[account.key] = true end
  local raw = redis.call('HGETALL', keys.hold(pool.name, id))
  for i = 1, #raw, 2 do
    local column, at = string.match(raw[i], '^(%l+)|(.+)$')
    hold[column][at] = tonumber(raw[i + 1])
  end
  return hold
end

-- Those of a pool, in order.
function victim_holds.list(pool)
  local list = listed[pool.name]
  if list then return list end
  list = {}
  listed[pool.name] = list
  local raw = pool.fields.victim_holds and redis.call('HGETALL', keys.pool_holds(pool.name)) or {}
  for i = 1, #raw, 2 do
    local since, n = string.match(raw[i + 1], '^victims (%d+) (%d+)$')
    local hold = n and open(pool, raw[i], since, n)
    if type(hold) == 'table' then list[#list + 1] = hold end
  end
  table.sort(list, function(one, other) return one.n < other.n end)
  return list
end

function victim_holds.find(pool, id)
  for at, hold in ipairs(victim_holds.list(pool)) do
    if hold.id == id then return hold, at end
  end
end

-- What a hold keeps of a key at an account of its owner's path.
function victim_holds.units_held(hold, account, key)
  return math.max(0, (hold.lane.units.of[key] or 0) - (hold.expected[mark(account, key)] or 0))
end

function victim_holds.units_freed(hold, account, key) return hold.freed[mark(account, key)] or 0 end
function victim_holds.units_expected(hold, account, key) return hold.expected[mark(account, key)] or 0 end

local function count(pool, by)
  local now = (tonumber(pool.fields.victim_holds) or 0) + by
  pool.fields.victim_holds = now > 0 and amounts.format(now) or nil
  if now > 0 then redis.call('HSET', pool.key, 'victim_holds', amounts.format(now)) else redis.call('HDEL', pool.key, 'victim_holds') end
end

-- Give a waiter its hold; nobody leaves for it yet.
function victim_holds.open(path, lane, request)
  local pool = path[#path]
  local list, n = victim_holds.list(pool), redis.call('HINCRBY', pool.key, 'last_hold_number', 1)
  redis.call('HSET', keys.pool_holds(pool.name), request.id, 'victims ' .. amounts.format(clock.now) .. ' ' .. amounts.format(n))
  redis.call('HSET', keys.request(request.id), 'victim_hold_pool', pool.name)
  request.victim_hold_pool = pool.name
  local hold = open(pool, request.id, clock.now, n)
  list[#list + 1] = hold
  count(pool, 1)
  for _, account in ipairs(path) do
    for _, key in ipairs(lane.units.keys) do account_updates.add_victim_held(account, key, lane.units.of[key]) end
  end
  return hold
end

-- It ends; those who were leaving for it leave for nobody any more. Says whether there were such.
function victim_holds.close(pool, hold)
  local _, at = victim_holds.find(pool, hold.id)
  table.remove(listed[pool.name], at)
  count(pool, -1)
  for _, account in ipairs(hold.path) do
    for _, key in ipairs(hold.lane.units.keys) do account_updates.add_victim_held(account, key, -victim_holds.units_held(hold, account, key)) end
  end
  redis.call('HDEL', keys.pool_holds(pool.name), hold.id)
  redis.call('DEL', keys.hold(pool.name, hold.id))
  if redis.call('EXISTS', keys.request(hold.id)) == 1 then redis.call('HDEL', keys.request(hold.id), 'victim_hold_pool') end
  local leaving, any = redis.call('HGETALL', keys.pool_victims(pool.name)), false
  for i = 1, #leaving, 2 do
    if leaving[i + 1] == hold.id then
      any = true
      redis.call('HSET', keys.pool_victims(pool.name), leaving[i], '-')
      redis.call('ZREM', keys.preemption_deadlines(), leaving[i])
      local there = redis.call('EXISTS', keys.request(leaving[i])) == 1  -- else it was lost; its time stands still from now on
      if there then redis.call('HSET', keys.request(leaving[i]), 'orphaned_ms', amounts.format(clock.now)) end
    end
  end
  return any
end

-- Somebody along this path begins to leave for the hold (1), or does no longer (-1); `has_left` if its units are back.
function victim_holds.update_expected(pool, hold, path, units, sign, has_left)
  local at = keys.hold(pool.name, hold.id)
  for _, account in ipairs(path) do
    for _, key in ipairs(hold.on[account.key] and units.keys or {}) do
      if hold.lane.units.of[key] then
        local where, before = mark(account, key), victim_holds.units_held(hold, account, key)
        hold.expected[where] = (hold.expected[where] or 0) + sign * units.of[key]
        redis.call('HSET', at, 'expected|' .. where, amounts.format(hold.expected[where]))
        if has_left then
          hold.freed[where] = (hold.freed[where] or 0) + units.of[key]
          redis.call('HSET', at, 'freed|' .. where, amounts.format(hold.freed[where]))
        end
        local change = victim_holds.units_held(hold, account, key) - before
        if change ~= 0 then account_updates.add_victim_held(account, key, change) end
        if change < 0 then dirty_pools.mark_constraints(pool, account, units, {'victim_held', 'patience_held'}) end
      end
    end
  end
end
