-- Read a bounded part of the rows that changed since the first page of a workspace copy: requests with their lanes, groups and policies.
-- `event` is the newest event at that time; `pools` have the number of the newest change without an event. The last part (`more` is
-- empty) also has the settings of the workspace, the pools, the patience holds and the preemptions since `since`; then all rows are of this
-- moment. If pools were declared meanwhile or the changes are not kept any more, the reply is `moved` and the copy starts again.
-- @use account_copies accounts amounts clock pool_changes request_copies
-- @reads events meta pool pool_holds pool_preemptions pools template_checks templates
-- @args now event pools since most
-- @reply copied now event pools rows found lanes more
-- @reply moved

clock.start(args.now)
local most, event, pools = tonumber(args.most), args.event, cjson.decode(args.pools)
if event ~= '0-0' and not redis.call('XRANGE', keys.events(), event, event)[1] then return reply.moved() end
if #pools ~= redis.call('HLEN', keys.pools()) then return reply.moved() end
for _, row in ipairs(pools) do
  local pool = accounts.pool(row[1])
  if not pool or (pool.fields.rules or '0') ~= row[3] then return reply.moved() end
  row.pool = pool
end

local rows, found, seen = {}, {}, {}
local function first_time(name)
  local is_new = not seen[name]
  seen[name] = true
  return is_new
end
local function add_request(id)
  if id ~= '' and first_time('request ' .. id) then found[#found + 1] = request_copies.read(id) end
end
local function add_account(pool_name, id)
  if not first_time(pool_name .. ' ' .. id) then return end
  local kind, name = string.match(id, '^(%l+):(.+)$')
  if kind == 'group' then account_copies.add_group(rows, pool_name, name) else account_copies.add_policy(rows, pool_name, name) end
end
local function add_path(pool_name, component)
  local path = first_time(pool_name .. ' path ' .. component) and accounts.path(pool_name, component) or {}
  for i = 1, #path - 1 do add_account(pool_name, path[i].id) end
end

local entries = redis.call('XRANGE', keys.events(), '(' .. event, '+', 'COUNT', most)
for _, entry in ipairs(entries) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  add_request(fields.request)
  add_request(fields.by)
  if fields.pool ~= '' and fields.component then add_path(fields.pool, fields.component) end
  event = entry[1]
end
local more = #entries == most
for _, row in ipairs(pools) do
  local members = pool_changes.list(row[1], tonumber(row[2]), most)
  if not members then return reply.moved() end
  for i = 1, #members, 2 do
    local id = string.match(members[i], '^request:(.+)$')
    if id then add_request(id) else add_account(row[1], members[i]) end
    row[2] = members[i + 1]
  end
  more = more or #members == 2 * most
end

local function add(key, kind, values)
  if #values > 0 then rows[#rows + 1] = {key, kind, values} end
end
local function add_pool(pool)
  local owner = pool.fields.patience
  local hold = owner and redis.call('HGET', keys.pool_holds(pool.name), owner)
  add(keys.pool(pool.name), 'hash', redis.call('HGETALL', keys.pool(pool.name)))
  add(keys.pool_holds(pool.name), 'hash', hold and {owner, hold} or {})
  add(keys.pool_preemptions(pool.name), 'zset', redis.call('ZRANGEBYSCORE', keys.pool_preemptions(pool.name), args.since, '+inf', 'WITHSCORES', 'LIMIT', 0, most))
end
local numbers = {}
for i, row in ipairs(pools) do
  if not more then add_pool(row.pool) end
  numbers[i] = {row[1], row[2], row[3], row[4]}
end
if not more then
  add(keys.meta(), 'hash', redis.call('HGETALL', keys.meta()))
  add(keys.pools(), 'hash', redis.call('HGETALL', keys.pools()))
  add(keys.templates(), 'hash', redis.call('HGETALL', keys.templates()))
  add(keys.template_checks(), 'zset', redis.call('ZRANGE', keys.template_checks(), 0, -1, 'WITHSCORES'))
end
return reply.copied(amounts.format(clock.now), event, numbers, rows, found, request_copies.lanes(found), more)
