-- The position of the recheck of a pool. It reads the policies of the pool page by page, and the lanes of each policy in the order of
-- their ids. The pages of a Redis set differ between servers. So after a change of the master, the recheck begins anew.
-- @reads component_lanes meta pool_policies
-- @writes pool_unfinished

local PAGE = 32
local END = 'end'

-- Begin with the first page.
function recheck_cursor.start(pool)
  redis.call('HSET', keys.pool_unfinished(pool.name), 'review', '', 'review_page', '')
end

-- Return the cursor of a recheck under way. `page`: the next page. `components`: the policies of this page that are left. `lane`: the
-- last lane of the first of these policies that was rechecked, empty if none was. After a change of the master, return a cursor
-- at the beginning.
function recheck_cursor.load(pool)
  local lane, page, components = unpack(redis.call('HMGET', keys.pool_unfinished(pool.name), 'review', 'review_page', 'review_policies'))
  local master, cursor = redis.call('HGET', keys.meta(), 'master') or '', {page = '0', components = {}, lane = ''}
  local stored_page, stored_master = string.match(page or '', '^(%S+) (.*)$')
  cursor.master = master
  if stored_master ~= master then return cursor end
  cursor.page, cursor.lane = stored_page, lane
  for component in string.gmatch(components, '%S+') do table.insert(cursor.components, component) end
  return cursor
end

function recheck_cursor.save(pool, cursor)
  redis.call('HSET', keys.pool_unfinished(pool.name), 'review', cursor.lane, 'review_page', cursor.page .. ' ' .. cursor.master,
    'review_policies', table.concat(cursor.components, ' '))
end

function recheck_cursor.finish(pool)
  redis.call('HDEL', keys.pool_unfinished(pool.name), 'review', 'review_page', 'review_policies')
end

function recheck_cursor.is_at_end(cursor) return cursor.page == END and #cursor.components == 0 end

-- Return the next lanes of the first policy of the cursor. If it has no more, or if no policy of the page is left, return no lanes and
-- go on to the next policy or page.
function recheck_cursor.next_lanes(pool, cursor)
  local component = cursor.components[1]
  if not component then
    local page = redis.call('SSCAN', keys.pool_policies(pool.name), cursor.page, 'COUNT', PAGE)
    cursor.page, cursor.components = page[1] == '0' and END or page[1], page[2]
    return {}
  end
  local ids = redis.call('ZRANGEBYLEX', keys.component_lanes(component), cursor.lane == '' and '-' or '(' .. cursor.lane, '+', 'LIMIT', 0, PAGE)
  if #ids == 0 then
    table.remove(cursor.components, 1)
    cursor.lane = ''
  end
  return ids
end
