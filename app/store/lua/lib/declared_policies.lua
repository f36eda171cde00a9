-- The declared policies of the workspace, templates included and instances not. The limit `max_policies` counts them.
-- @use templates
-- @reads pool_policies
-- @writes meta policy

-- Return the number of declared policies of a pool.
function declared_policies.count(pool) return redis.call('SCARD', keys.pool_policies(pool.name)) - tonumber(pool.fields.instances or 0) end

-- Count a policy that is declared now. An existing instance becomes a declared policy.
function declared_policies.add(pool, component, existing)
  redis.call('HINCRBY', keys.meta(), 'policies', 1)
  if existing and existing.fields.template then
    templates.detach(pool, existing.fields.template, component)
    redis.call('HDEL', existing.key, 'template')
  end
  if templates.is_template(component) then templates.register(component) end
end
