-- Fair share: the demand of each policy, the sum over its waiters.
-- @use amounts lanes
-- @reads lane pool_lanes

-- Return the demand in a page of the pool's lanes, a row for each policy: component, waiters, units by key. Return also the
-- start of the next page, empty at the end.
function policy_demand.read(pool, first, count)
  local sums_by_component, components = {}, {}
  local ids = redis.call('ZRANGE', keys.pool_lanes(pool.name), first, first + count - 1)
  for _, id in ipairs(ids) do
    local lane, waiting = lanes.open(id), redis.call('ZCARD', keys.lane(id))
    local sums = sums_by_component[lane.component]
    if not sums then
      sums = {waiting = 0, units = {}}
      sums_by_component[lane.component] = sums
      components[#components + 1] = lane.component
    end
    sums.waiting = sums.waiting + waiting
    for _, key in ipairs(lane.units.keys) do sums.units[key] = (sums.units[key] or 0) + waiting * lane.units.of[key] end
  end
  local rows = {}
  for i, component in ipairs(components) do
    rows[i] = {component, amounts.format(sums_by_component[component].waiting)}
    for key, units in pairs(sums_by_component[component].units) do
      rows[i][#rows[i] + 1] = key
      rows[i][#rows[i] + 1] = amounts.format(math.min(const.MAX_AMOUNT, units))
    end
  end
  return rows, #ids == count and amounts.format(first + count) or ''
end
