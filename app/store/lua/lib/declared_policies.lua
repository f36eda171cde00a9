-- The declared policies of the workspace, templates among them: those that the limit of policies counts.
-- @use templates
-- @reads pool_policies
-- @writes meta policy

-- Return how many policies of a pool are declared.
function declared_policies.count(pool) return redis.call('SCARD', keys.pool_policies(pool.name)) - tonumber(pool.fields.instances or 0) end

-- Count a policy that is declared now. One that a template has made becomes a declared one.
function declared_policies.add(pool, component, existing)
  redis.call('HINCRBY', keys.meta(), 'policies', 1)
  if existing and existing.fields.template then
    templates.release(pool, existing.fields.template, component)
    redis.call('HDEL', existing.key, 'template')
  end
  if templates.is_template(component) then templates.register(component) end
end
