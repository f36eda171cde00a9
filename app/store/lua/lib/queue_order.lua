-- Pack the queue order into one number; the order and its constants are defined in `app/domain/queue_score.py`.
-- @use fair_share_order

-- Return the score of a waiter in its lane: class, then number of submission.
function queue_order.lane_score(class, seq)
  return (const.CLASS_COUNT - 1 - class) * const.MAX_SUBMISSIONS + seq
end

local function rank(pool, priority, lane_score)
  local class, inverse_priority = math.floor(lane_score / const.MAX_SUBMISSIONS), const.PRIORITY_COUNT - 1 - priority
  if pool.fields.discipline == 'classes' then return class * const.PRIORITY_COUNT + inverse_priority end
  return inverse_priority * const.CLASS_COUNT + class
end

-- Return the score of a waiter in the queue of a pool: rank, then number of submission.
function queue_order.rank_score(pool, policy, lane_score)
  if fair_share_order.applies(pool) then return lane_score end
  return rank(pool, tonumber(policy.fields.priority), lane_score) * const.MAX_SUBMISSIONS + lane_score % const.MAX_SUBMISSIONS
end

-- Return the queue score: the rank score with the in-share flag.
function queue_order.with_share_flag(pool, rank_score, in_share)
  local borrow_flag = in_share and 0 or 1
  if pool.fields.order == 'priority_first' then
    return (math.floor(rank_score / const.MAX_SUBMISSIONS) * 2 + borrow_flag) * const.MAX_SUBMISSIONS - const.BORROWING_STEP + rank_score % const.MAX_SUBMISSIONS  -- only this order of operations is exact
  end
  return rank_score + (borrow_flag - 1) * const.BORROWING_STEP
end

-- Return the queue score of a waiter, by which lanes and waiters of different lanes are served.
function queue_order.queue_score(pool, policy, lane_score, in_share)
  if fair_share_order.applies(pool) then return queue_order.in_tier(fair_share_order.tier(pool, policy.component), lane_score) end
  return queue_order.with_share_flag(pool, queue_order.rank_score(pool, policy, lane_score), in_share)
end

-- Return the queue score in a tier (fair share). The stored score has no tier, as tiers change with every grant.
function queue_order.in_tier(tier, lane_score) return tier * const.TIER_STEP + lane_score end

-- Return the part of a queue score that is stored.
function queue_order.without_tier(pool, queue_score)
  return fair_share_order.applies(pool) and queue_score % const.TIER_STEP or queue_score
end

-- Return the stored score of a lane, by its head and its in-share flag.
function queue_order.stored_score(pool, policy, lane_score, in_share)
  return fair_share_order.applies(pool) and lane_score or queue_order.queue_score(pool, policy, lane_score, in_share)
end

-- Return the lane score from which on the waiters of a policy have this rank score or more.
function queue_order.lane_score_from(pool, policy, rank_score)
  local rank_part, seq = math.floor(rank_score / const.MAX_SUBMISSIONS), rank_score % const.MAX_SUBMISSIONS
  local inverse_priority = const.PRIORITY_COUNT - 1 - tonumber(policy.fields.priority)
  if pool.fields.discipline == 'classes' then
    local class, other_priority = math.floor(rank_part / const.PRIORITY_COUNT), rank_part % const.PRIORITY_COUNT
    if inverse_priority > other_priority then return class * const.MAX_SUBMISSIONS end
    if inverse_priority < other_priority then return (class + 1) * const.MAX_SUBMISSIONS end
    return class * const.MAX_SUBMISSIONS + seq
  end
  local other_priority, class = math.floor(rank_part / const.CLASS_COUNT), rank_part % const.CLASS_COUNT
  if inverse_priority > other_priority then return 0 end
  if inverse_priority < other_priority then return const.CLASS_COUNT * const.MAX_SUBMISSIONS end
  return class * const.MAX_SUBMISSIONS + seq
end
