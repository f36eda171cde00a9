-- Change pools, their groups and their policies as declared. If anything is forbidden, nothing changes. If a template with instances is
-- deleted or gets another parent, the reply is `instances`: the caller deletes the idle ones and calls again.
-- @use accounts amounts clock declaration declared_policies deletions grants operation_replies pool_limits promises quotas rechecks requests template_updates templates unfinished_work
-- @reads pool pool_instances
-- @writes component_pools group meta policy pool_groups pool_policies pools
-- @args now events_kept chunk op changes
-- @reply declared more
-- @reply changed pool
-- @reply unfinished
-- @reply in_use pool account queued active
-- @reply refused pool code account key wants bound
-- @reply limited subject name limit present
-- @reply instances pool template

clock.start(args.now)
requests.set_stream_length(args.events_kept)
if operation_replies.find(args.op) then return reply.declared(unfinished_work.resume(tonumber(args.chunk))) end
local changes = cjson.decode(args.changes)
for _, change in ipairs(changes) do
  if not declaration.is_unchanged(change) then return reply.changed(change.name) end
  if declaration.has_unfinished_work(change) then return reply.unfinished() end
end
for _, change in ipairs(changes) do
  local usage, refusal = declaration.find_use(change), declaration.refusal(change)
  if usage then return reply.in_use(change.name, unpack(usage)) end
  if refusal then return reply.refused(change.name, unpack(refusal)) end
end
-- Return the first template that is deleted, or gets another parent, while it has instances; nil if there is none.
local function find_template_with_instances(change)
  local names, pool = {}, change.before and change.after and accounts.pool(change.name)
  for _, name in ipairs(pool and change.gone.policies or {}) do names[#names + 1] = name end
  for _, account in ipairs(pool and declaration.moved_accounts(change) or {}) do names[#names + 1] = account.component end
  for _, name in ipairs(names) do
    if redis.call('EXISTS', keys.pool_instances(change.name, name)) == 1 then return name end
  end
end

for _, change in ipairs(changes) do
  local template = find_template_with_instances(change)
  if template then return reply.instances(change.name, template) end
end
local limit_refusal = pool_limits.declaration_refusal(changes)
if limit_refusal then return reply.limited(unpack(limit_refusal)) end

-- Return the parent account of a row.
local function parent(pool, above) return above == '' and pool or accounts.group(pool.name, above) end

-- Subtract the old reserved amounts of accounts that change or are deleted.
local function subtract_reserved(pool, kind, names)
  for _, name in ipairs(names) do
    local account = kind.account(pool.name, name)
    if account then quotas.update_reserved_sums(pool, quotas.parent(pool, account), promises.of(account), -1) end
  end
end

local function write(pool, kind, row)
  local key, account = kind.key(pool.name, row.name), kind.account(pool.name, row.name)
  quotas.write(key, account, {reserved = amounts.decode(row.reserved).of, limit = amounts.decode(row.limit).of}, row.settings)
  if not account then quotas.number_account(pool, key) end
  redis.call('HSET', key, 'weight', row.weight)
  if row.above ~= '' then redis.call('HSET', key, kind.above, row.above) else redis.call('HDEL', key, kind.above) end
  redis.call('SADD', kind.names(pool.name), row.name)
  if kind.rows == 'policies' then
    if not account or account.fields.template then declared_policies.add(pool, row.name, account) end
    redis.call('HSET', key, 'priority', row.priority, 'profile', row.profile)
    if templates.is_template(row.name) then redis.call('HSET', key, 'reserved_times', amounts.format(promises.times(pool, row.name, row.settings))) end
    redis.call('ZADD', keys.component_pools(row.name), '-' .. row.priority, pool.name)
  end
end

-- Write capacity, settings (an empty one is unset) and description.
local function write_pool(name, after)
  local key = keys.pool(name)
  quotas.write(key, accounts.pool(name), {reserved = {}, limit = amounts.decode(after.capacity).of}, after.settings)
  redis.call('HSET', keys.pools(), name, after.description)
end

-- Apply the change of one pool: subtract all old amounts, then write all accounts, then add all new amounts. So no order of
-- accounts matters.
local function apply_change(change)
  local pool, after = accounts.pool(change.name), change.after
  if not after then return deletions.pool(pool) end
  for _, account in ipairs(pool and declaration.moved_accounts(change) or {}) do grants.end_holds_through(pool, account) end
  for _, kind in ipairs(pool and declaration.KINDS or {}) do
    for _, row in ipairs(after[kind.rows]) do subtract_reserved(pool, kind, {row.name}) end
    subtract_reserved(pool, kind, change.gone[kind.rows])
  end
  write_pool(change.name, after)
  pool = accounts.pool(change.name)
  for _, kind in ipairs(declaration.KINDS) do
    for _, name in ipairs(change.gone[kind.rows]) do kind.remove(pool.name, name) end
    for _, row in ipairs(after[kind.rows]) do write(pool, kind, row) end
  end
  for _, kind in ipairs(declaration.KINDS) do
    for _, row in ipairs(after[kind.rows]) do
      local wanted = {reserved = amounts.decode(row.reserved).of, times = promises.times(pool, row.name, row.settings)}
      quotas.update_reserved_sums(pool, parent(pool, row.above), promises.wanted(wanted), 1)
    end
  end
  rechecks.start(pool)
  for _, row in ipairs(after.policies) do
    if templates.is_template(row.name) then template_updates.start(accounts.pool(change.name), row.name) end
  end
end

for _, change in ipairs(changes) do apply_change(change) end
operation_replies.save(args.op)
return reply.declared(unfinished_work.resume(tonumber(args.chunk)))
