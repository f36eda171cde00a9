-- Note the unfinished work of a workspace copy: first the unfinished changes of templates, then a recheck of the lanes in some pools
-- (`rechecked`), then a pass of the grant loop in every pool.
-- @use template_updates
-- @reads pools templates
-- @writes pool pool_unfinished unfinished
-- @args rechecked
-- @reply unsettled

for _, name in ipairs(redis.call('HKEYS', keys.pools())) do
  redis.call('HSET', keys.pool(name), 'unsettled', '1')
  redis.call('SADD', keys.unfinished(), name)
end
for _, name in ipairs(cjson.decode(args.rechecked)) do
  redis.call('HSET', keys.pool(name), 'reviewing', '1')
  redis.call('HSET', keys.pool_unfinished(name), 'review', '')
  for _, pattern in ipairs(redis.call('HKEYS', keys.templates())) do template_updates.resume_later(name, pattern) end
end
return reply.unsettled()
