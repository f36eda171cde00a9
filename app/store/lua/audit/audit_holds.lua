-- Compare the victims, the holds with victims and the allocation records of a pool with the requests; repair if asked.
-- @use accounts amounts audit_findings lanes requests victim_holds
-- @reads pool_allocations
-- @writes hold pool pool_allocation_records pool_holds pool_victims preemption_deadlines
-- @args pool repair
-- @reply audited differences
-- @reply not_found

audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local allocations, deadlines = {}, {}
for _, id in ipairs(redis.call('ZRANGE', keys.pool_allocations(args.pool), 0, -1)) do
  local request = requests.load(id)
  local is_allocation = request and (request.status == states.allocated or request.status == states.preempting)
  if is_allocation and request.pool == args.pool then allocations[id] = request end
end

-- Compare a hash with its expected values: id → text.
local function compare(key, kind, expected_values)
  local raw, stored = redis.call('HGETALL', key), {}
  for i = 1, #raw, 2 do
    stored[raw[i]] = raw[i + 1]
    if not expected_values[raw[i]] and audit_findings.add(kind, args.pool .. ' ' .. raw[i], raw[i + 1], nil) then redis.call('HDEL', key, raw[i]) end
  end
  for id, text in pairs(expected_values) do
    if stored[id] ~= text and audit_findings.add(kind, args.pool .. ' ' .. id, stored[id], text) then redis.call('HSET', key, id, text) end
  end
end

local holds, count = {}, 0
local raw = redis.call('HGETALL', keys.pool_holds(args.pool))
for i = 1, #raw, 2 do
  if string.match(raw[i + 1], '^victims ') then
    local owner = requests.load(raw[i])
    local is_valid = owner and owner.status == states.queued and owner.victim_hold_pool == args.pool
    if is_valid or not audit_findings.add('hold', args.pool .. ' ' .. raw[i], raw[i + 1], owner and owner.status) then
      holds[raw[i]] = true
      count = count + 1
    else
      redis.call('HDEL', keys.pool_holds(args.pool), raw[i])
      redis.call('DEL', keys.hold(args.pool, raw[i]))
    end
  end
end
local stored_count = tonumber(pool.fields.victim_holds) or 0
if stored_count ~= count and audit_findings.add('hold', args.pool .. ' holds with victims', amounts.format(stored_count), amounts.format(count)) then
  pool.fields.victim_holds = count > 0 and amounts.format(count) or nil
  if count > 0 then redis.call('HSET', pool.key, 'victim_holds', amounts.format(count)) else redis.call('HDEL', pool.key, 'victim_holds') end
end

local records, owners, victims_of = {}, {}, {}
for id, request in pairs(allocations) do
  records[id] = requests.allocation_record(request)
  if request.status == states.preempting then
    local owner = redis.call('HGET', keys.pool_victims(args.pool), id)
    local leaves_for_limit = request.reason == 'limit' and (request.preempted_by or '') == ''
    local has_hold = leaves_for_limit or holds[owner]
    owners[id] = leaves_for_limit and '!' or has_hold and owner or '-'
    deadlines[id] = has_hold and tonumber(request.deadline_ms) or nil
    victims_of[owners[id]] = victims_of[owners[id]] or {}
    victims_of[owners[id]][#victims_of[owners[id]] + 1] = request
    local stored = tonumber(redis.call('ZSCORE', keys.preemption_deadlines(), id))
    if stored ~= deadlines[id] and audit_findings.add('leaving', id, stored and amounts.format(stored), deadlines[id] and amounts.format(deadlines[id])) then
      if deadlines[id] then redis.call('ZADD', keys.preemption_deadlines(), amounts.format(deadlines[id]), id) else redis.call('ZREM', keys.preemption_deadlines(), id) end
    end
  end
end
compare(keys.pool_allocation_records(args.pool), 'line', records)
compare(keys.pool_victims(args.pool), 'leaving', owners)

for _, hold in ipairs(victim_holds.list(pool)) do
  local expected_values = {}
  for field, units in pairs(hold.freed) do expected_values['freed|' .. field] = amounts.format(units) end
  for field in pairs(hold.expected) do expected_values['expected|' .. field] = '0' end
  for _, request in ipairs(victims_of[hold.id] or {}) do
    local units = lanes.of(request).units
    for _, account in ipairs(accounts.path(args.pool, request.component)) do
      for _, key in ipairs(hold.account_keys[account.key] and units.keys or {}) do
        local field = 'expected|' .. account.id .. '|' .. key
        if hold.lane.units.of[key] then expected_values[field] = amounts.format((tonumber(expected_values[field]) or 0) + units.of[key]) end
      end
    end
  end
  compare(keys.hold(args.pool, hold.id), 'hold', expected_values)
end
return reply.audited(audit_findings.list())
