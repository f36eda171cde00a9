"""Fair share: the part of a pool that each account is entitled to, the accounts below it for too long, the preemptible work.

Amounts go in, shares come out. Pure: no Redis, no clock, no randomness. A share is a fraction of the pool's capacity of a key.
A division treats all keys at once: an account that asks much of one key gets no more of the other keys than belongs to it.

- `share_tree.py`        the tree of a pool: branches and leaves, in whole units
- `inputs.py`            usage, demand, limit and guarantee of every account as shares
- `piecewise_linear.py`  piecewise linear functions: their sum, and the answer of an account to an offer
- `water_filling.py`     the division: curves from the leaves up, then levels from the root down
- `satisfaction.py`      an account compared with its share: the satisfaction ratio, and whether it is below
- `starvation.py`        the inherited settings, and the state of an account that is below its share for some time
- `preemptible_split.py` the running allocations of a leaf that are preemptible, and for which waiters

**How a pool is divided.** Every account has a function of its own: the amounts that it takes at a level. A leaf fills all keys
alike until each reaches what is running, then goes straight to its whole demand. A fair share branch offers each child its
level times the weight of the child. A fifo branch offers the whole to one child after the other. An account gets an offer on
top of its guarantee. It goes to the highest level at which it takes no more than that of any key, and no more than its limit.
So the least offer for a level can be computed: the amount of the dominant key at that level, less the guarantee. The inverse is
the answer of the account to an offer. The answers of the children, stretched by their weights and added, are the function of
the parent. Each function is a list of points that is made once, so the only search is for the level at which the root stops.
The way down reads the same lists.

If the dominant key stands still while another key rises, the answer jumps. Exactly at a jump, the lower value counts. A limit
below the demand stops an account, with all accounts below it, on all keys. Without any offer, an account takes the most that
its guarantee covers.

**Numbers.** A share is a whole number of 1/scale, and the scale is a multiple of every capacity, so all inputs are exact.
Levels divided by weights, and crossings of two lines, are rounded at the 72nd bit or further down. Levels of siblings that are
almost equal are made equal, so that rounding does not decide which of two jumps comes first. If children would exceed their
parent's share by the last digit, the level is lowered until they do not.
"""
