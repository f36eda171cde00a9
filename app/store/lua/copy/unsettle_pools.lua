-- Let the unfinished work of a workspace copy judge the lanes of every pool; those of some pools (`rechecked`) are rechecked before.
-- @reads pools
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
end
return reply.unsettled()
