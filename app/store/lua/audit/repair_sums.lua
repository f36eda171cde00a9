-- Add corrections to the sums of a pool: key of the account (or of the hold), field, difference, and whether the field is deleted if it
-- becomes 0. A difference stays right if units are booked meanwhile. After a declaration or another repair the reply is `moved`.
-- @use accounts rechecks
-- @writes group hold policy pool
-- @args pool rules corrections
-- @reply repaired
-- @reply moved

local pool = accounts.pool(args.pool)
if not pool or (pool.fields.rules or '0') ~= args.rules then return reply.moved() end

local function key_of(place)
  local kind, name = string.match(place, '^(%l+):(.+)$')
  if kind == 'hold' then return keys.hold(args.pool, name) end
  if kind == 'group' then return keys.group(args.pool, name) end
  return kind == 'policy' and keys.policy(args.pool, name) or pool.key
end

for _, row in ipairs(cjson.decode(args.corrections)) do
  local place, field, correction, may_delete = unpack(row)
  local key = key_of(place)
  if redis.call('EXISTS', key) == 1 then
    local value = redis.call('HINCRBY', key, field, correction)
    if value == 0 and may_delete == '1' then redis.call('HDEL', key, field) end
  end
end
rechecks.start(pool)
return reply.repaired()
