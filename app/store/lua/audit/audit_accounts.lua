-- Compare every account of a pool with the sums over its allocations, its holds and its children; repair if asked.
-- @use accounts amounts audit_findings lanes patience_hold quotas rechecks requests victim_holds
-- @reads pool_allocations pool_groups pool_policies
-- @writes group policy pool
-- @args pool repair
-- @reply audited differences
-- @reply not_found

audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local COLUMNS = {'used', 'fixed', 'victim_held', 'patience_held', 'children_reserved', 'reserving_accounts'}
local all_accounts, sums = {pool}, {}
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_groups(args.pool))) do all_accounts[#all_accounts + 1] = accounts.group(args.pool, name) end
for _, name in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do all_accounts[#all_accounts + 1] = accounts.policy(args.pool, name) end
for _, account in ipairs(all_accounts) do
  sums[account] = {}
  for _, column in ipairs(COLUMNS) do sums[account][column] = {} end
end

local function add(account, column, key, amount)
  local sum = sums[account][column]
  sum[key] = (sum[key] or 0) + amount
end

local function add_all(path, units, column)
  for _, account in ipairs(path) do
    for _, key in ipairs(units.keys) do add(account, column, key, units.of[key]) end
  end
end

for _, id in ipairs(redis.call('ZRANGE', keys.pool_allocations(args.pool), 0, -1)) do
  local request = requests.load(id)
  if request and request.pool == args.pool and (request.status == states.allocated or request.status == states.preempting) then
    local lane = lanes.of(request)
    local path = accounts.path(args.pool, lane.component)
    add_all(path, lane.units, 'used')
    if lane.fixed then add_all(path, lane.units, 'fixed') end
  end
end
local owner = patience_hold.owner(pool)
if owner then add_all(owner.path, owner.lane.units, 'patience_held') end
for _, hold in ipairs(victim_holds.list(pool)) do
  for _, account in ipairs(hold.path) do
    for _, key in ipairs(hold.lane.units.keys) do add(account, 'victim_held', key, victim_holds.units_held(hold, account, key)) end
  end
end
for _, account in ipairs(all_accounts) do
  for key, reserved in pairs(account.reserved) do
    if account ~= pool and reserved > 0 then
      add(quotas.parent(pool, account), 'children_reserved', key, reserved)
      add(pool, 'reserving_accounts', key, 1)
    end
  end
end

for _, account in ipairs(all_accounts) do
  for _, column in ipairs(COLUMNS) do
    local stored, expected, names = account[column], sums[account][column], {}
    for key in pairs(stored) do names[key] = true end
    for key in pairs(expected) do names[key] = true end
    for key in pairs(names) do
      if (stored[key] or 0) ~= (expected[key] or 0) then
        local place = args.pool .. ' ' .. account.id .. ' ' .. column .. ' ' .. key
        if audit_findings.add('account', place, amounts.format(stored[key] or 0), amounts.format(expected[key] or 0)) then
          if expected[key] then redis.call('HSET', account.key, column .. ':' .. key, amounts.format(expected[key]))
          else redis.call('HDEL', account.key, column .. ':' .. key) end
        end
      end
    end
  end
end
if audit_findings.any() and args.repair == '1' then rechecks.start(pool) end
return reply.audited(audit_findings.list())
