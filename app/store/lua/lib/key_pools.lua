-- The pools that have the keys of a request which no pool can grant: they explain the rejection.
-- @use lanes
-- @reads pool pools

local EXAMINED = 64  -- pools that are read, at most
local LISTED = 8  -- names that are listed of a key, at most
local LISTED_OF_ALL = 32

-- Return the names of up to `EXAMINED` pools: those of the component of a lane first, then by name; and whether there are more.
local function first_pools(lane)
  local names, seen, others = {}, {}, redis.call('HKEYS', keys.pools())
  table.sort(others)
  for _, list in ipairs({lanes.component_pools(lane), others}) do
    for _, name in ipairs(list) do
      if #names == EXAMINED and not seen[name] then return names, true end
      if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
  end
  return names, false
end

local function row(key, names, most, is_cut)
  is_cut = is_cut or #names > most
  return key .. '=' .. table.concat(names, ',', 1, math.min(#names, most)) .. (is_cut and ',...' or '')
end

local cache = {}

-- Return rows `key=pool,pool`, split by `;`: of each asked key that can be missing the pools that have it, of `*` all pools, of `+` the
-- pools that have all these keys. A list that is cut ends with `...`; that of `+` if not all pools were read.
function key_pools.list(lane)
  if cache[lane.id] then return cache[lane.id] end
  local asked, fields, having, complete = {}, {}, {}, {}
  for _, key in ipairs(lane.units.keys) do
    if not const.UNBOUNDED[key] then
      asked[#asked + 1], fields[#fields + 1], having[key] = key, 'limit:' .. key, {}
    end
  end
  local names, has_more = first_pools(lane)
  for _, name in ipairs(#asked > 0 and names or {}) do
    local capacities = redis.call('HMGET', keys.pool(name), unpack(fields))
    local count = 0
    for i, key in ipairs(asked) do
      if capacities[i] then having[key][#having[key] + 1], count = name, count + 1 end
    end
    if count == #asked then complete[#complete + 1] = name end
  end
  local rows = {row('*', names, LISTED_OF_ALL, has_more), row('+', {unpack(complete, 1, LISTED)}, LISTED, has_more)}
  for _, key in ipairs(asked) do rows[#rows + 1] = row(key, having[key], LISTED) end
  cache[lane.id] = table.concat(rows, ';')
  return cache[lane.id]
end
