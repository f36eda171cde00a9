-- Write the fair-share state of a pool at its accounts: shares, starvation, since when an account is over its limit, and whether
-- the pool has to be watched without waiters. Then grant by the new order.
-- @use accounts clock fair_share_order grant_loop pool_changes requests
-- @writes group policy pool
-- @args now events_kept chunk pool rows watched rules
-- @reply published more
-- @reply stale why

clock.start(args.now)
requests.set_stream_length(args.events_kept)
local pool = accounts.pool(args.pool)
if not pool then return reply.stale('pool') end
if pool.fields.reviewing or (pool.fields.rules or '0') ~= args.rules then return reply.stale('rules') end

-- True if an account has other values than these, or one of the fields to be removed.
local function changes(account, updates, removed)
  for i = 1, #updates, 2 do
    if redis.call('HGET', account.key, updates[i]) ~= updates[i + 1] then return true end
  end
  for _, field in ipairs(removed) do
    if redis.call('HEXISTS', account.key, field) == 1 then return true end
  end
end

local policies, changed_accounts = {}, {}
for _, row in ipairs(cjson.decode(args.rows)) do
  local name, updates, removed = unpack(row)
  local account = accounts.by_id(args.pool, name)
  if account then
    if name ~= 'pool' and changes(account, updates, removed) then changed_accounts[#changed_accounts + 1] = name end
    if #removed > 0 then redis.call('HDEL', account.key, unpack(removed)) end
    if #updates > 0 then redis.call('HSET', account.key, unpack(updates)) end
    accounts.forget(account.key)
    policies[#policies + 1] = string.match(name, '^policy:(.+)$')
  end
end
pool_changes.add(args.pool, changed_accounts)
pool = accounts.pool(args.pool)
for _, component in ipairs(policies) do fair_share_order.update(pool, accounts.policy(args.pool, component)) end
if args.watched ~= '' and (pool.fields.watched or '') ~= args.watched then redis.call('HSET', pool.key, 'watched', args.watched) end
return reply.published(grant_loop.settle(tonumber(args.chunk)))
