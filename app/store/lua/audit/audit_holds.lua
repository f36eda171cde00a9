-- Compare a range of the rows of a pool with the requests; repair if asked. `kind` names the rows: `allocations`, `records`,
-- `victims`, `holds`, or `members`, the victims that are listed with the hold of `owner`. For `holds` the reply also has the owners in
-- the range. The sums of the holds are compared elsewhere (`read_sum_rows`).
-- @use accounts amounts audit_findings orphans pool_changes requests victims
-- @reads pool_allocations request
-- @writes hold hold_victims pool pool_allocation_records pool_holds pool_victims preemption_deadlines
-- @args pool kind owner cursor count repair
-- @reply audited differences cursor owners
-- @reply not_found

audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local records, owners, holds = keys.pool_allocation_records(args.pool), keys.pool_victims(args.pool), keys.pool_holds(args.pool)

-- Return an allocation of the pool; nil if the request is none.
local function allocation(id)
  local request = redis.call('ZSCORE', keys.pool_allocations(args.pool), id) and requests.load(id)
  local is_allocation = request and (request.status == states.allocated or request.status == states.preempting)
  return is_allocation and request.pool == args.pool and request or nil
end

-- Compare the field of an allocation in a hash with its expected value, nil for none.
local function compare(kind, key, id, stored, expected)
  if stored == (expected or false) or not audit_findings.add(kind, args.pool .. ' ' .. id, stored, expected) then return end
  if kind == 'line' then
    if expected then redis.call('HSET', key, id, expected) else redis.call('HDEL', key, id) end
  elseif expected then victims.set_owner(pool, id, expected) else victims.remove(pool, id) end
  pool_changes.add(args.pool, {'request:' .. id})
end

local function is_valid_owner(id)
  local owner = redis.call('HMGET', keys.request(id), 'status', 'victim_hold_pool')
  return owner[1] == states.queued and owner[2] == args.pool
end

-- Return the owner that a victim leaves for, and its deadline if it still has to leave.
local function expected_of_victim(request)
  local owner = redis.call('HGET', owners, request.id)
  local leaves_for_limit = request.reason == 'limit' and (request.preempted_by or '') == ''
  local has_hold = leaves_for_limit or owner and (redis.call('HEXISTS', holds, owner) == 1 or orphans.is_pending(pool, owner))
  return leaves_for_limit and '!' or has_hold and owner or '-', has_hold and tonumber(request.deadline_ms) or nil
end

local function check_deadline(id, expected)
  local stored = tonumber(redis.call('ZSCORE', keys.preemption_deadlines(), id))
  if stored == expected or not audit_findings.add('leaving', id, stored and amounts.format(stored), expected and amounts.format(expected)) then return end
  if expected then redis.call('ZADD', keys.preemption_deadlines(), amounts.format(expected), id) else redis.call('ZREM', keys.preemption_deadlines(), id) end
end

-- Check that the victims of a hold are listed with it.
local function check_member(owner, id)
  local key = keys.hold_victims(args.pool, owner)
  if owner == '-' or owner == '!' or redis.call('SISMEMBER', key, id) == 1 then return end
  if audit_findings.add('leaving', args.pool .. ' ' .. id, 'not listed', owner) then redis.call('SADD', key, id) end
end

local owners_in_page = {}

local CHECKS = {
  allocations = function(id)
    local request = allocation(id)
    if not request then return end
    compare('line', records, id, redis.call('HGET', records, id), requests.allocation_record(request))
    if request.status ~= states.preempting then return end
    local owner, deadline = expected_of_victim(request)
    check_deadline(id, deadline)
    compare('leaving', owners, id, redis.call('HGET', owners, id), owner)
    check_member(owner, id)
  end,
  records = function(id, record)
    if not allocation(id) then compare('line', records, id, record, nil) end
  end,
  victims = function(id, owner)
    local request = allocation(id)
    if not request or request.status ~= states.preempting then compare('leaving', owners, id, owner, nil) end
  end,
  holds = function(id, text)
    owners_in_page[#owners_in_page + 1] = id
    if not string.match(text, '^victims ') or is_valid_owner(id) then return end
    if not audit_findings.add('hold', args.pool .. ' ' .. id, text, redis.call('HGET', keys.request(id), 'status')) then return end
    redis.call('HDEL', holds, id)
    redis.call('DEL', keys.hold(args.pool, id), keys.hold_victims(args.pool, id))
    pool_changes.add(args.pool, {'request:' .. id})
  end,
}

if args.kind == 'members' then
  local key = keys.hold_victims(args.pool, args.owner)
  local page = redis.call('SSCAN', key, args.cursor, 'COUNT', args.count)
  for _, id in ipairs(page[2]) do
    local leaves = redis.call('HGET', owners, id) == args.owner
    if not leaves and audit_findings.add('leaving', args.pool .. ' ' .. id, args.owner, nil) then redis.call('SREM', key, id) end
  end
  return reply.audited(audit_findings.list(), page[1], {})
end

local is_sorted_set = args.kind == 'allocations'
local key = ({allocations = keys.pool_allocations(args.pool), records = records, victims = owners, holds = holds})[args.kind]
local page = redis.call(is_sorted_set and 'ZSCAN' or 'HSCAN', key, args.cursor, 'COUNT', args.count)
for i = 1, #page[2], 2 do CHECKS[args.kind](page[2][i], page[2][i + 1]) end

if args.kind == 'holds' and page[1] == '0' then  -- a pool has at most one hold of the other kind
  local has_patience_hold = string.match(redis.call('HGET', holds, pool.fields.patience or '') or '', '^patience ')
  local count, stored = redis.call('HLEN', holds) - (has_patience_hold and 1 or 0), tonumber(pool.fields.victim_holds) or 0
  if stored ~= count and audit_findings.add('hold', args.pool .. ' holds with victims', amounts.format(stored), amounts.format(count)) then
    if count > 0 then redis.call('HSET', pool.key, 'victim_holds', amounts.format(count)) else redis.call('HDEL', pool.key, 'victim_holds') end
  end
end
return reply.audited(audit_findings.list(), page[1], owners_in_page)
