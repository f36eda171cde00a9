"""The queue score: rank and age packed into one number.

The score of a waiter is rules 2 to 4 of the queue order (rank, then submission number). The position of a lane adds rule 1 (in
share before borrowing). Redis keeps scores as doubles, exact between -2^53 and 2^53, so the parts fit into 54 bits:

1. in-share flag: in share (0) or must borrow (1); with `priority_first` it stands after the rank
2. rank: priority 0..9999 and class 0..10, the higher the smaller the number (17 bits)
3. submission number in the workspace (36 bits)

With fair share the class alone is the rank, and the position is instead

1. tier: how many policies of the pool are less satisfied (13 bits)
2. class (4 bits)
3. submission number (36 bits)

The score in Redis leaves the tier out, because it moves with every grant.

The numbers below are the only declaration; Lua receives them.
"""

from __future__ import annotations

MAX_SUBMISSIONS = 2**36
"""The greatest number of submissions in a workspace (68 billion)."""

CLASS_COUNT = 11
PRIORITY_COUNT = 10_000
RANK_COUNT = CLASS_COUNT * PRIORITY_COUNT
BORROWING_STEP = 2**53
"""The distance between the positions of a lane in share and of one that must borrow."""

TIER_STEP = 16 * MAX_SUBMISSIONS
"""The distance between the positions of two tiers with fair share."""

SHARE_UNITS = 10**12
"""The unit of a published share: this many are the whole pool."""

MAX_AMOUNT = 2**53 - 1
"""The largest amount, and the bound of an unbounded key: sums of doubles are exact up to here."""
