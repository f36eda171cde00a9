-- Rank and age in one number (rules 2 to 4 of the order), and with rule 1 a lane's place.
-- @use fair_share_order

-- What a lane sorts its members by: class, then number of submission.
function queue_order.lane_score(class, seq)
  return (const.CLASSES - 1 - class) * const.AGES + seq
end

local function rank(pool, priority, inner)
  local class, weight = math.floor(inner / const.AGES), const.PRIORITIES - 1 - priority
  if pool.fields.discipline == 'classes' then return class * const.PRIORITIES + weight end
  return weight * const.CLASSES + class
end

function queue_order.rank_score(pool, policy, inner)
  if fair_share_order.applies(pool) then return inner end
  return rank(pool, tonumber(policy.fields.priority), inner) * const.AGES + inner % const.AGES
end

function queue_order.with_share_flag(pool, score, inshare)
  local band = inshare and 0 or 1
  if pool.fields.order == 'priority_first' then
    return (math.floor(score / const.AGES) * 2 + band) * const.AGES - const.BAND + score % const.AGES  -- exact in this order only
  end
  return score + (band - 1) * const.BAND
end

function queue_order.queue_score(pool, policy, inner, inshare)
  if fair_share_order.applies(pool) then return queue_order.in_tier(fair_share_order.tier(pool, policy.component), inner) end
  return queue_order.with_share_flag(pool, queue_order.rank_score(pool, policy, inner), inshare)
end

-- With fair share: the place in a tier. What is kept of it leaves the tier out, which moves with every grant.
function queue_order.in_tier(tier, inner) return tier * const.TIER + inner end

-- What of a place is kept.
function queue_order.without_tier(pool, place)
  return fair_share_order.applies(pool) and place % const.TIER or place
end

-- What is kept of the place a lane has by its head and its share.
function queue_order.stored_score(pool, policy, inner, inshare)
  return fair_share_order.applies(pool) and inner or queue_order.queue_score(pool, policy, inner, inshare)
end

-- The inner number from which on a policy's members score `score` or more.
function queue_order.lane_score_from(pool, policy, score)
  local ranked, seq = math.floor(score / const.AGES), score % const.AGES
  local weight = const.PRIORITIES - 1 - tonumber(policy.fields.priority)
  if pool.fields.discipline == 'classes' then
    local class, other = math.floor(ranked / const.PRIORITIES), ranked % const.PRIORITIES
    if weight > other then return class * const.AGES end
    if weight < other then return (class + 1) * const.AGES end
    return class * const.AGES + seq
  end
  local other, class = math.floor(ranked / const.CLASSES), ranked % const.CLASSES
  if weight > other then return 0 end
  if weight < other then return const.CLASSES * const.AGES end
  return class * const.AGES + seq
end
