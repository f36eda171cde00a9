-- Fair share: what all who wait for a pool ask, summed up by policy.
-- @use amounts lanes
-- @keys lane pool_lanes

-- Of a stretch of the pool's lanes: component, how many wait and the amounts of all of them, a row each; and where the next
-- stretch begins, empty if that was all.
function policy_demand.read(pool, first, count)
  local of, components = {}, {}
  local ids = redis.call('ZRANGE', keys.pool_lanes(pool.name), first, first + count - 1)
  for _, id in ipairs(ids) do
    local lane, waiting = lanes.open(id), redis.call('ZCARD', keys.lane(id))
    local sums = of[lane.component]
    if not sums then
      sums = {waiting = 0, units = {}}
      of[lane.component] = sums
      components[#components + 1] = lane.component
    end
    sums.waiting = sums.waiting + waiting
    for _, key in ipairs(lane.units.keys) do sums.units[key] = (sums.units[key] or 0) + waiting * lane.units.of[key] end
  end
  local rows = {}
  for i, component in ipairs(components) do
    rows[i] = {component, amounts.format(of[component].waiting)}
    for key, units in pairs(of[component].units) do
      rows[i][#rows[i] + 1] = key
      rows[i][#rows[i] + 1] = amounts.format(math.min(const.EXACT, units))
    end
  end
  return rows, #ids == count and amounts.format(first + count) or ''
end
