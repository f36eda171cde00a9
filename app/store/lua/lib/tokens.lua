-- Tokens: under the digest of each secret a record in JSON, which was put together by who made it.
-- @use clock amounts
-- @keys tokens

local function lives(record)
  local lapses = cjson.decode(record).expires_ms
  return not lapses or clock.now < lapses
end

-- The record under a digest, also of one that has expired.
function tokens.record(digest)
  return redis.call('HGET', keys.tokens(), digest) or nil
end

-- The record of a token that has not expired.
function tokens.valid_record(digest)
  local record = tokens.record(digest)
  return record and lives(record) and record or nil
end

-- The digest and the record of the token with this id or name, and whether it still lives; nil if there is none.
function tokens.find(id_or_name)
  local all = redis.call('HGETALL', keys.tokens())
  for i = 1, #all, 2 do
    local token = cjson.decode(all[i + 1])
    if token.id == id_or_name or token.name == id_or_name then return all[i], all[i + 1], lives(all[i + 1]) end
  end
end

-- Write a record with its times put before the rest.
function tokens.save(digest, record, lasts_s)
  local times = '{"created_ms":' .. amounts.format(clock.now)
  if lasts_s ~= '' then times = times .. ',"expires_ms":' .. amounts.format(clock.after(lasts_s)) end
  local dated = times .. ',' .. string.sub(record, 2)
  redis.call('HSET', keys.tokens(), digest, dated)
  return dated
end

function tokens.delete(digest)
  redis.call('HDEL', keys.tokens(), digest)
end
