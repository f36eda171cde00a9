-- Tokens: the digest of each secret → a record in JSON, as its creator wrote it.
-- @use amounts clock
-- @writes tokens

local function is_valid(record)
  local lapses = cjson.decode(record).expires_ms
  return not lapses or clock.now < lapses
end

-- Return the record of a digest, also of an expired token.
function tokens.record(digest)
  return redis.call('HGET', keys.tokens(), digest) or nil
end

-- Return the record of a token that has not expired.
function tokens.valid_record(digest)
  local record = tokens.record(digest)
  return record and is_valid(record) and record or nil
end

-- Return digest and record of the token with this id or name, and whether it is valid; nil if there is none.
function tokens.find(id_or_name)
  local records = redis.call('HGETALL', keys.tokens())
  for i = 1, #records, 2 do
    local token = cjson.decode(records[i + 1])
    if token.id == id_or_name or token.name == id_or_name then return records[i], records[i + 1], is_valid(records[i + 1]) end
  end
end

-- Write a record with its times before the rest.
function tokens.save(digest, record, lasts_s)
  local time_fields = '{"created_ms":' .. amounts.format(clock.now)
  if lasts_s ~= '' then time_fields = time_fields .. ',"expires_ms":' .. amounts.format(clock.after(lasts_s)) end
  local dated = time_fields .. ',' .. string.sub(record, 2)
  redis.call('HSET', keys.tokens(), digest, dated)
  return dated
end

function tokens.delete(digest)
  redis.call('HDEL', keys.tokens(), digest)
end
