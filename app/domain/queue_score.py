"""The order of the queue: its definition, and the numbers that pack it into one score.

A pool serves its waiters by these criteria; the first difference decides:

1. in share before borrowing: the lane fits the unused share of its policy
2. the higher priority of the policy (0 to 9999)
3. the higher preemption class (0 to 10)
4. the lower submission number in the workspace: the older request

With `order = priority_first`, criterion 1 comes after 3. With `discipline = classes`, 3 comes before 2. With `discipline =
fair_share` the criteria are

1. the lower tier: the tier of a policy is the number of less satisfied policies in the pool
2. the higher preemption class
3. the lower submission number

`queue_key` is this order. `lua/lib/queue_order.lua` packs it; a test compares the two. Lua has three scores. All are exact in
Redis, which keeps them as doubles between -2^53 and 2^53. The lowest score is first:

- lane score: class (4 bits) and submission number (36 bits); orders the waiters of one lane
- rank score: priority and class (17 bits), and submission number; orders the sorted set `pool:<pool>:queue`
- queue score: all criteria; orders lanes, and waiters of different lanes. The in-share flag takes one bit, or the tier 13.
  Redis stores it without the tier, which changes with every grant.

A *position* is a place counted from 1, not a score.
"""

from __future__ import annotations

MAX_SUBMISSIONS = 2**36
"""The greatest number of submissions in a workspace (68 billion)."""

CLASS_COUNT = 11
PRIORITY_COUNT = 10_000
RANK_COUNT = CLASS_COUNT * PRIORITY_COUNT
BORROWING_STEP = 2**53
"""The distance between the queue scores of a waiter in share and of the same waiter if it has to borrow."""

TIER_STEP = 16 * MAX_SUBMISSIONS
"""The distance between the queue scores of two tiers with fair share."""

SHARE_UNITS = 10**12
"""The units of a published share that are the whole pool."""

MAX_AMOUNT = 2**53 - 1
"""The largest amount, and the bound of an unbounded key: sums of doubles are exact up to here."""


def queue_key(
    discipline: str, order: str, *, in_share: bool, tier: int, priority: int, preemption_class: int, submission_number: int
) -> tuple[int, ...]:
    """Return the sort key of a waiter in the queue of a pool with this discipline and this setting `order`.

    1. in share before borrowing 2. higher priority 3. higher class 4. lower submission number, in the sequence described above.
    `tier` counts with fair share only, `in_share` and `priority` without.
    """
    if discipline == "fair_share":
        return tier, -preemption_class, submission_number
    rank = (-preemption_class, -priority) if discipline == "classes" else (-priority, -preemption_class)
    if order == "priority_first":
        return *rank, not in_share, submission_number
    return not in_share, *rank, submission_number
