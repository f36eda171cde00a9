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

**How a pool is divided.** Every account has a function: the amounts that it takes at a level. A leaf fills all keys alike until
each reaches its usage, then rises straight to its whole demand. A fair share branch offers each child its level times the
weight of the child. A fifo branch offers the whole pool to one child after the other. An account gets an offer in addition to
its guarantee. It rises to the highest level at which it takes, of every key, at most offer plus guarantee and at most its
limit. So the least offer for a level can be computed: the amount of the dominant key at that level, less the guarantee. The
inverse function is the curve of the account: its level for an offer. The curves of the children, stretched by their weights and
added, are the function of the parent. Each function is a list of points that is made once. So only the level at which the root
stops has to be searched. The levels of the other accounts are read from the same lists, from the root down.

If the dominant key stays constant while another key rises, the curve jumps. Exactly at a jump, the lower value counts. A limit
below the demand stops an account on all keys, and all accounts below it. With an offer of 0, an account takes the most that its
guarantee covers.

**Numbers.** A share is a whole number of 1/scale, and the scale is a multiple of every capacity, so all inputs are exact.
Levels divided by weights, and crossings of two lines, are rounded at the 72nd bit or further down. Levels of siblings that are
almost equal are made equal, so that rounding does not decide which of two jumps comes first. If rounding lets the children
exceed their parent's share, the level is lowered until they fit.
"""
