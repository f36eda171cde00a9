-- Compare a stretch of a pool's lanes with where each should stand, and that what it is parked on indeed keeps it.
-- @use accounts amounts audit_findings fair_share_order lane_grants lanes parking parking_lookup queue_order rechecks
-- @keys component_lanes unfinished pool_unfinished pool_in_share pool_lanes pool_strict_line pool_parking_needs pool_parking pool_parked pool_parking_counts
-- @args pool cursor count repair
-- @reply audited differences cursor
-- @reply not_found

audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local left = pool.fields.reviewing or pool.fields.unsettled or redis.call('EXISTS', keys.pool_unfinished(args.pool)) == 1
if left and redis.call('SISMEMBER', keys.unfinished(), args.pool) == 0 then
  if audit_findings.add('todo', args.pool, nil, 'listed') then redis.call('SADD', keys.unfinished(), args.pool) end
end

local function check(id)
  local lane = lanes.open(id)
  local path, head, inner = accounts.path(args.pool, lane.component), lanes.head(lane)
  if not path or not head or redis.call('SISMEMBER', keys.component_lanes(lane.component), id) == 0 then
    return audit_findings.add('lane', args.pool .. ' ' .. id, 'listed', nil)
  end
  local inshare = lanes.is_in_share(path, lane)
  local place = queue_order.stored_score(pool, path[1], inner, inshare)
  local constraint, need, _, spot = parking.find(pool, id)
  local park = spot == 'line' and keys.pool_strict_line(args.pool) or keys.pool_parking(args.pool, spot, need)
  local share = redis.call('SISMEMBER', keys.pool_in_share(args.pool), id) == 1
  if share ~= inshare then audit_findings.add('lane', args.pool .. ' ' .. id .. ' in share', share, inshare) end
  for _, key in ipairs({keys.pool_lanes(args.pool), park}) do
    local is = tonumber(redis.call('ZSCORE', key, id))
    if is ~= place then audit_findings.add('lane', key .. ' ' .. id, is and amounts.format(is), amounts.format(place)) end
  end
  local needs, whose = keys.pool_parking_needs(args.pool, spot), string.match(spot, '@(.+)$')
  local found = spot == 'line' or redis.call('ZSCORE', needs, need)
  if not found then audit_findings.add('lane', needs .. ' ' .. need, nil, need) end
  local least = whose and redis.call('ZRANGE', needs, 0, 0)[1]
  local told = least and redis.call('ZSCORE', keys.pool_parking_needs(args.pool, constraint), whose)
  if least and tonumber(told or 0) ~= tonumber(least) then audit_findings.add('lane', needs .. ' least', told or nil, least) end
  local is, should = fair_share_order.scores(pool, path[1])
  if is ~= should then audit_findings.add('lane', args.pool .. ' satisfaction of ' .. lane.component, is, should) end
  local settled = not pool.fields.unsettled and constraint ~= 'line'
  if settled and lane_grants.room(pool, constraint) >= tonumber(need) then
    audit_findings.add('lane', args.pool .. ' ' .. id .. ' waits for ' .. constraint, need, 'granted, or parked elsewhere')
  end
end

local scanned, constraints = {'0', {}}, redis.call('HKEYS', keys.pool_parking_counts(args.pool))
if not pool.fields.reviewing then
  scanned = redis.call('HSCAN', keys.pool_parked(args.pool), args.cursor, 'COUNT', args.count)
  for i = 1, #scanned[2], 2 do check(scanned[2][i]) end
  local parked = redis.call('ZCARD', keys.pool_strict_line(args.pool))
  for _, count in ipairs(redis.call('HVALS', keys.pool_parking_counts(args.pool))) do parked = parked + tonumber(count) end
  local listed = redis.call('HLEN', keys.pool_parked(args.pool))
  if parked ~= listed then audit_findings.add('parks', args.pool, amounts.format(parked), amounts.format(listed)) end
end
if audit_findings.any() and args.repair == '1' then
  for _, id in ipairs(redis.call('HKEYS', keys.pool_parked(args.pool))) do lanes.detach(pool, lanes.open(id)) end
  for _, constraint in ipairs(constraints) do
    parking_lookup.clear(pool, constraint)
  end
  redis.call('DEL', keys.pool_parking_counts(args.pool), keys.pool_lanes(args.pool), keys.pool_strict_line(args.pool), keys.pool_in_share(args.pool))
  rechecks.start(pool)
end
return reply.audited(audit_findings.list(), scanned[1])
