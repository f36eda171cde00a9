"""How rank and age are packed into one number.

A queue's score is rules 2 to 4 of the order (rank, then number of submission); a lane's place adds rule 1 (in share before
borrowing). Redis keeps scores as doubles, exact between -2^53 and 2^53, so the parts share 54 bits:

1. band: in share (0) or must borrow (1); with `priority_first` it stands after the rank
2. rank: priority 0..9999 and class 0..10, the higher the smaller the number (17 bits)
3. number of submission in the workspace (36 bits)

With fair share the class alone is the rank, and a place is instead

1. tier: how many policies of the pool are less satisfied (13 bits)
2. class (4 bits) 3. number of submission (36 bits)

of which what is kept in Redis leaves the tier out, as it moves with every grant.

The numbers below are the only declaration; Lua receives them.
"""

from __future__ import annotations

AGES = 2**36
"""How many submissions a workspace can number (68 billion)."""

CLASSES = 11
PRIORITIES = 10_000
RANKS = CLASSES * PRIORITIES
BAND = 2**53
"""What a place in the order moves by between in share and borrowing."""

TIER = 16 * AGES
"""What a place in the order of fair share moves by from one tier to the next."""

SHARE = 10**12
"""What a published share is told in parts of: so much is the whole pool."""

EXACT = 2**53 - 1
"""The largest amount, and what an unbounded key is bounded by: no double-counted unit hides in rounding."""
