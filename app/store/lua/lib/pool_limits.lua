-- Limits of the workspace for its pools and policies.
-- @use accounts amounts declared_policies limits
-- @reads meta pools

-- Return a refusal if the addition exceeds a limit of the workspace; else nil. A call that adds nothing is never refused.
local function refusal(name, default, present, added)
  local limit = limits.of_workspace(name, default)
  if added > 0 and present + added > limit then return {'workspace', name, amounts.format(limit), amounts.format(present)} end
end

-- Return a refusal if this number of further pools and policies exceeds a limit of the workspace; else nil.
function pool_limits.refusal(new_pools, new_policies)
  return refusal('max_pools', const.MAX_POOLS, redis.call('HLEN', keys.pools()), new_pools)
    or refusal('max_policies', const.MAX_POLICIES, tonumber(redis.call('HGET', keys.meta(), 'policies') or 0), new_policies)
end

-- Return a refusal if the pools and policies of a declaration exceed a limit of the workspace; else nil.
function pool_limits.declaration_refusal(changes)
  local new_pools, new_policies = 0, 0
  for _, change in ipairs(changes) do
    local pool = accounts.pool(change.name)
    local existing = pool and declared_policies.count(pool)
    if not change.after then
      new_pools, new_policies = new_pools - 1, new_policies - existing
    else
      if not existing then new_pools = new_pools + 1 end
      for _, row in ipairs(change.after.policies) do
        local policy = existing and accounts.policy(change.name, row.name)
        if not policy or policy.fields.template then new_policies = new_policies + 1 end
      end
      if existing then new_policies = new_policies - #change.gone.policies end
    end
  end
  return pool_limits.refusal(new_pools, new_policies)
end
