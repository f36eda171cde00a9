-- The one way units are given out and come back.
-- @use accounts amounts clock holds lanes parking queue requests
-- @keys meta live pool_active pool_ends

local raised = {}   -- pool → constraints that may have more room than at the last look
local stirred = {}  -- pool → true: the order or a hold changed

function grants.raised(name) return raised[name] end
function grants.stirred() return stirred end

function grants.stir(pool) stirred[pool.name] = true end

-- From here on the pool has been looked at.
function grants.calm(name)
  raised[name], stirred[name] = nil, nil
end

function grants.raise(pool, account, ask, kinds)
  local set = raised[pool.name] or {}
  raised[pool.name] = set
  grants.stir(pool)
  for _, key in ipairs(ask.keys) do
    for _, kind in ipairs(kinds) do set[kind .. '|' .. account.id .. '|' .. key] = true end
  end
end

function grants.end_hold(pool)
  local owner = holds.owner(pool)
  if not owner then return end
  holds.finish(pool, owner)
  for _, account in ipairs(owner.path) do grants.raise(pool, account, owner.lane.ask, {'held'}) end
end

local function columns(fixed) return fixed and {'used', 'fixed'} or {'used'} end

-- Debit every account of the path, or give back (sign -1).
local function book(path, lane, sign)
  local pool = path[#path]
  accounts.add(path, lane.ask, columns(lane.fixed), sign)
  if not parking.anybody(pool) then return end
  lanes.moved(path, lane.ask, 'p', 'used', sign)
  if lane.fixed then lanes.moved(path, lane.ask, 'f', 'fixed', sign) end
  if sign > 0 then return grants.stir(pool) end
  for _, account in ipairs(path) do grants.raise(pool, account, lane.ask, {'limit', 'held'}) end
  if lane.fixed then grants.raise(pool, path[1], lane.ask, {'fixed'}) end
end

-- Give a request its units under a new fence; without a path it is tied to no pool. `news` and `fields` as in requests.move.
function grants.give(path, lane, request, fields)
  local pool = path and path[#path]
  local fence = amounts.whole(redis.call('HINCRBY', keys.meta(), 'fence', 1))
  local lapses = request.lease_s and clock.after(request.lease_s) or const.EXACT
  redis.call('ZADD', keys.live(), amounts.whole(lapses), request.id)
  if pool then
    redis.call('ZADD', keys.pool_active(pool.name), fence, request.id)
    if request.walltime_s then
      redis.call('ZADD', keys.pool_ends(pool.name), amounts.whole(clock.after(request.walltime_s)), request.id)
    end
    book(path, lane, 1)
  end
  requests.move(request, states.allocated, 'allocated', {'pool', pool and pool.name or '', 'fence', fence,
    'granted_ms', amounts.whole(clock.now)}, fields)
end

-- Take a waiter out of every queue; holds it had end.
function grants.unqueue(request, lane)
  for _, name in ipairs(lanes.pools(lane.component)) do
    local pool = accounts.pool(name)
    if pool.is.patience == request.id then grants.end_hold(pool) end
  end
  for _, pool in ipairs(queue.leave(request.id, lane)) do grants.stir(pool) end
end

-- Grant one that waits.
function grants.waiter(path, lane, id)
  local request, fields = requests.load(id), {}
  grants.unqueue(request or {id = id}, lane)
  if not request then return end  -- lost
  grants.give(path, lane, request, fields)
  requests.write(request, fields)
end

-- Take a holder's units back.
function grants.back(request)
  redis.call('ZREM', keys.live(), request.id)
  if request.pool == '' then return end
  local lane, path = lanes.of(request), accounts.path(request.pool, request.component)
  redis.call('ZREM', keys.pool_active(request.pool), request.id)
  if request.walltime_s then redis.call('ZREM', keys.pool_ends(request.pool), request.id) end
  book(path, lane, -1)
end
