-- Compare lanes of a pool with their expected scores, and check that the constraint of each still blocks it. If `lanes`
-- is empty, the next page is compared. If the work budget is used up, the reply has the lanes that are left.
-- @use accounts amounts audit_findings fair_share_order lane_grants lanes parking parking_rebuild parking_subtrees parking_tree queue_order rechecks share_sides work_budget
-- @reads component_lanes pool_blocked_since pool_in_share pool_lanes pool_parked pool_parking pool_parking_counts pool_parking_needs
-- @reads pool_queue_syncs pool_strict_line pool_unfinished
-- @writes unfinished
-- @args pool cursor lanes count repair
-- @reply audited differences cursor lanes
-- @reply not_found

audit_findings.start(args.repair)
local pool = accounts.pool(args.pool)
if not pool then return reply.not_found() end

local has_unfinished_work = pool.fields.reviewing or pool.fields.unsettled or redis.call('EXISTS', keys.pool_unfinished(args.pool), keys.pool_queue_syncs(args.pool)) > 0
if has_unfinished_work and redis.call('SISMEMBER', keys.unfinished(), args.pool) == 0 then
  if audit_findings.add('todo', args.pool, nil, 'listed') then redis.call('SADD', keys.unfinished(), args.pool) end
end

local function check(id)
  local lane = lanes.open(id)
  local path, head, lane_score = accounts.path(args.pool, lane.component), lanes.head(lane)
  if not path or not head or not redis.call('ZSCORE', keys.component_lanes(lane.component), id) then
    return audit_findings.add('lane', args.pool .. ' ' .. id, 'listed', nil)
  end
  local in_share = lanes.is_in_share(path, lane)
  local stored_score = queue_order.stored_score(pool, path[1], lane_score, in_share)
  local constraint, need, since, slot = parking.find(pool, id)
  local parking_key = slot == 'line' and keys.pool_strict_line(args.pool) or keys.pool_parking(args.pool, slot, need)
  local stored_in_share = redis.call('SISMEMBER', keys.pool_in_share(args.pool), id) == 1
  if stored_in_share ~= in_share then audit_findings.add('lane', args.pool .. ' ' .. id .. ' in share', stored_in_share, in_share) end
  for _, key in ipairs({keys.pool_lanes(args.pool), parking_key}) do
    local stored = tonumber(redis.call('ZSCORE', key, id))
    if stored ~= stored_score then audit_findings.add('lane', key .. ' ' .. id, stored and amounts.format(stored), amounts.format(stored_score)) end
  end
  local policy_name = string.match(slot, '@(.+)$')
  local broken_node = slot ~= 'line' and parking_subtrees.broken_node(pool, slot, need)
  if broken_node then audit_findings.add('lane', args.pool .. ' ' .. id .. ' tree', broken_node, 'the least score') end
  local least = policy_name and slot ~= 'line' and parking_tree.least_need(pool, slot)
  local stored_least = least and redis.call('ZSCORE', keys.pool_parking_needs(args.pool, constraint), policy_name)
  if least and tonumber(stored_least or 0) ~= tonumber(least) then audit_findings.add('lane', constraint .. ' least need of ' .. policy_name, stored_least or nil, least) end
  local stored_since = redis.call('ZSCORE', keys.pool_blocked_since(args.pool), id)
  local expected_since = parking.is_capacity(constraint) and tonumber(since) or nil
  if tonumber(stored_since or '') ~= expected_since then audit_findings.add('lane', args.pool .. ' ' .. id .. ' blocked since', stored_since, expected_since) end
  if not pool.fields.crossing and not share_sides.is_right(path, lane) then audit_findings.add('lane', args.pool .. ' ' .. id .. ' side', 'wrong', 'by its amounts') end
  local stored, expected = fair_share_order.scores(pool, path[1])
  if stored ~= expected then audit_findings.add('lane', args.pool .. ' satisfaction of ' .. lane.component, stored, expected) end
  local is_settled = not pool.fields.unsettled and constraint ~= 'line'
  if is_settled and lane_grants.room(pool, constraint) >= tonumber(need) then
    audit_findings.add('lane', args.pool .. ' ' .. id .. ' waits for ' .. constraint, need, 'granted, or parked elsewhere')
  end
end

-- Compare the number of parked lanes with the sum of the numbers of all constraints.
local function check_counts()
  local parked_count = redis.call('ZCARD', keys.pool_strict_line(args.pool))
  for _, count in ipairs(redis.call('HVALS', keys.pool_parking_counts(args.pool))) do parked_count = parked_count + tonumber(count) end
  local lane_count = redis.call('HLEN', keys.pool_parked(args.pool))
  if parked_count ~= lane_count then audit_findings.add('parks', args.pool, amounts.format(parked_count), amounts.format(lane_count)) end
end

if pool.fields.reviewing then return reply.audited(audit_findings.list(), '0', {}) end
local ids, rest, cursor = cjson.decode(args.lanes), {}, args.cursor
if #ids == 0 then
  if cursor == '0' then check_counts() end
  local page = redis.call('HSCAN', keys.pool_parked(args.pool), cursor, 'COUNT', args.count)
  cursor = page[1]
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
end
for i, id in ipairs(ids) do
  if i > 1 and work_budget.is_used_up() then rest[#rest + 1] = id
  elseif redis.call('HEXISTS', keys.pool_parked(args.pool), id) == 1 then check(id) end
end
if audit_findings.any() and args.repair == '1' then
  parking_rebuild.start(pool)
  rechecks.start(pool)
end
return reply.audited(audit_findings.list(), cursor, rest)
