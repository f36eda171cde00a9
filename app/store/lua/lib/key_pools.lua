-- Pools that have keys of a request that no pool can grant. The reason of the rejection names these pools.
-- @use lanes
-- @reads pool pools

local MAX_POOLS = 64  -- most pools that are read
local MAX_NAMES = 8  -- most pools listed for a key
local MAX_ALL_NAMES = 32  -- most pools listed for `*`

-- Return the names of up to `MAX_POOLS` pools: those of the component of a lane first, then by name; and whether there are more.
local function first_pools(lane)
  local names, seen, others = {}, {}, redis.call('HKEYS', keys.pools())
  table.sort(others)
  for _, list in ipairs({lanes.component_pools(lane), others}) do
    for _, name in ipairs(list) do
      if #names == MAX_POOLS and not seen[name] then return names, true end
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

-- Return rows `key=pool,pool`, separated by `;`. Each key of the request that a pool can lack has a row with the pools that
-- have the key. The row `*` has all pools. The row `+` has the pools with every such key. A shortened list ends with `...`; the
-- row `+` ends so only if not all pools were read.
function key_pools.list(lane)
  if cache[lane.id] then return cache[lane.id] end
  local resource_keys, fields, pools_by_key, complete = {}, {}, {}, {}
  for _, key in ipairs(lane.units.keys) do
    if not const.UNBOUNDED[key] then
      resource_keys[#resource_keys + 1], fields[#fields + 1], pools_by_key[key] = key, 'limit:' .. key, {}
    end
  end
  local names, has_more = first_pools(lane)
  for _, name in ipairs(#resource_keys > 0 and names or {}) do
    local capacities = redis.call('HMGET', keys.pool(name), unpack(fields))
    local count = 0
    for i, key in ipairs(resource_keys) do
      if capacities[i] then pools_by_key[key][#pools_by_key[key] + 1], count = name, count + 1 end
    end
    if count == #resource_keys then complete[#complete + 1] = name end
  end
  local rows = {row('*', names, MAX_ALL_NAMES, has_more), row('+', {unpack(complete, 1, MAX_NAMES)}, MAX_NAMES, has_more)}
  for _, key in ipairs(resource_keys) do rows[#rows + 1] = row(key, pools_by_key[key], MAX_NAMES) end
  cache[lane.id] = table.concat(rows, ';')
  return cache[lane.id]
end
