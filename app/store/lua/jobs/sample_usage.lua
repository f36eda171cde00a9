-- Note how much of a pool is used now, and by which policies, unless it was noted less than this long ago. The oldest notes go.
-- Of more policies than are listed, those that use the largest parts of the pool are, and a `+` says so.
-- @use accounts amounts clock
-- @keys policy pool_usage_history pool_policies
-- @args now pool apart_ms most listed
-- @reply sampled
-- @reply early
-- @reply not_found

clock.start(args.now)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end
local last = tonumber(string.match(redis.call('LINDEX', keys.pool_usage_history(args.pool), -1) or '', '^%d+'))
if last and math.abs(clock.now - last) < tonumber(args.apart_ms) then return reply.early() end

local listed = {}
for key in pairs(pool.limit) do listed[#listed + 1] = key end
table.sort(listed)
local wanted = {'creation_number'}
for i, key in ipairs(listed) do
  wanted[i + 1] = 'used:' .. key
  wanted[#listed + i + 1] = 'reserved:' .. key
end

local function row(of)
  local units = {}
  for i, key in ipairs(listed) do units[i] = amounts.format(of[key] or 0) end
  return table.concat(units, ',')
end

-- A policy goes by its number in the pool: names are long. One that uses nothing and has nothing reserved is left out.
local function told(component)
  local found = redis.call('HMGET', keys.policy(args.pool, component), unpack(wanted))
  local used, any, part = {}, false, 0
  for i, key in ipairs(listed) do
    used[key] = tonumber(found[i + 1] or 0)
    any = any or used[key] > 0 or tonumber(found[#listed + i + 1] or 0) > 0
    part = part + used[key] / pool.limit[key]
  end
  return found[1] and any and {part = part, born = tonumber(found[1]), text = found[1] .. ':' .. row(used)} or nil
end

local rows = {}
for _, component in ipairs(redis.call('SMEMBERS', keys.pool_policies(args.pool))) do rows[#rows + 1] = told(component) end
table.sort(rows, function(a, b)
  if a.part ~= b.part then return a.part > b.part end
  return a.born < b.born
end)
local words = {amounts.format(clock.now), table.concat(listed, ','), row(pool.limit), row(pool.used)}
for i = 1, math.min(#rows, tonumber(args.listed)) do words[i + 4] = rows[i].text end
if #rows > tonumber(args.listed) then words[#words + 1] = '+' end
redis.call('RPUSH', keys.pool_usage_history(args.pool), table.concat(words, ' '))
redis.call('LTRIM', keys.pool_usage_history(args.pool), '-' .. args.most, -1)
return reply.sampled()
