-- Compare who leaves for whom in a pool, what its holds with victims count on, and what decisions are told of its allocations,
-- with the requests; repair if asked.
-- @use accounts amounts audit_findings lanes requests victim_holds
-- @keys hold preemption_deadlines pool_allocations pool_allocation_records pool_holds pool_victims
-- @args pool repair
-- @reply audited differences
-- @reply not_found

audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local running, leaving = {}, {}
for _, id in ipairs(redis.call('ZRANGE', keys.pool_allocations(args.pool), 0, -1)) do
  local request = requests.load(id)
  local live = request and (request.status == states.allocated or request.status == states.preempting)
  if live and request.pool == args.pool then running[id] = request end
end

-- A hash against what it should be: id → text.
local function compare(key, kind, should)
  local raw, is = redis.call('HGETALL', key), {}
  for i = 1, #raw, 2 do
    is[raw[i]] = raw[i + 1]
    if not should[raw[i]] and audit_findings.add(kind, args.pool .. ' ' .. raw[i], raw[i + 1], nil) then redis.call('HDEL', key, raw[i]) end
  end
  for id, text in pairs(should) do
    if is[id] ~= text and audit_findings.add(kind, args.pool .. ' ' .. id, is[id], text) then redis.call('HSET', key, id, text) end
  end
end

local holds, count = {}, 0
local raw = redis.call('HGETALL', keys.pool_holds(args.pool))
for i = 1, #raw, 2 do
  if string.match(raw[i + 1], '^victims ') then
    local owner = requests.load(raw[i])
    local right = owner and owner.status == states.queued and owner.victim_hold_pool == args.pool
    if right or not audit_findings.add('hold', args.pool .. ' ' .. raw[i], raw[i + 1], owner and owner.status) then
      holds[raw[i]] = true
      count = count + 1
    else
      redis.call('HDEL', keys.pool_holds(args.pool), raw[i])
      redis.call('DEL', keys.hold(args.pool, raw[i]))
    end
  end
end
local noted = tonumber(pool.fields.victim_holds) or 0
if noted ~= count and audit_findings.add('hold', args.pool .. ' holds with victims', amounts.format(noted), amounts.format(count)) then
  pool.fields.victim_holds = count > 0 and amounts.format(count) or nil
  if count > 0 then redis.call('HSET', pool.key, 'victim_holds', amounts.format(count)) else redis.call('HDEL', pool.key, 'victim_holds') end
end

local lines, owners, coming = {}, {}, {}
for id, request in pairs(running) do
  lines[id] = requests.allocation_record(request)
  if request.status == states.preempting then
    local owner = redis.call('HGET', keys.pool_victims(args.pool), id)
    local limit = request.reason == 'limit' and (request.preempted_by or '') == ''
    local expected = limit or holds[owner]
    owners[id] = limit and '!' or expected and owner or '-'
    leaving[id] = expected and tonumber(request.deadline_ms) or nil
    coming[owners[id]] = coming[owners[id]] or {}
    coming[owners[id]][#coming[owners[id]] + 1] = request
    local is = tonumber(redis.call('ZSCORE', keys.preemption_deadlines(), id))
    if is ~= leaving[id] and audit_findings.add('leaving', id, is and amounts.format(is), leaving[id] and amounts.format(leaving[id])) then
      if leaving[id] then redis.call('ZADD', keys.preemption_deadlines(), amounts.format(leaving[id]), id) else redis.call('ZREM', keys.preemption_deadlines(), id) end
    end
  end
end
compare(keys.pool_allocation_records(args.pool), 'line', lines)
compare(keys.pool_victims(args.pool), 'leaving', owners)

for _, hold in ipairs(victim_holds.list(pool)) do
  local should = {}
  for where, units in pairs(hold.freed) do should['freed|' .. where] = amounts.format(units) end
  for where in pairs(hold.expected) do should['expected|' .. where] = '0' end
  for _, request in ipairs(coming[hold.id] or {}) do
    local units = lanes.of(request).units
    for _, account in ipairs(accounts.path(args.pool, request.component)) do
      for _, key in ipairs(hold.on[account.key] and units.keys or {}) do
        local where = 'expected|' .. account.id .. '|' .. key
        if hold.lane.units.of[key] then should[where] = amounts.format((tonumber(should[where]) or 0) + units.of[key]) end
      end
    end
  end
  compare(keys.hold(args.pool, hold.id), 'hold', should)
end
return reply.audited(audit_findings.list())
