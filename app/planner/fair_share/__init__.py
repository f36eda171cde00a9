"""Fair share: what part of a pool each account is due, which account was below its part for too long, what may be preempted.

Amounts in, shares out. Pure: no Redis, no clock, no randomness. A share is a fraction of the pool's capacity of a key. A
division is about all keys at once: an account that asks much of one key gets no more of the others than goes with it.

- `share_tree.py`        the tree of a pool: branches and leaves, in whole units
- `inputs.py`            every account's usage, demand, limit and guarantee as shares
- `piecewise_linear.py`  piecewise linear functions: how they are added, and how an account answers an offer
- `water_filling.py`     the division: curves from the leaves up, then levels from the root down
- `satisfaction.py`      how an account stands to its share: the satisfaction ratio, and whether it is below
- `starvation.py`        the inherited settings, and the state of an account that is below for some time
- `preemptible_split.py` which running allocations of a leaf are preemptible, and by which waiters

**How a pool is divided.** Every account has a function of its own: what it takes at a level. A leaf fills all keys alike
until each has what runs, then goes straight to its whole demand. A fair share branch offers each child its level times
its weight, a fifo branch the whole to one child after the other. Offered so much on top of its guarantee, an account goes
to the highest level at which it takes no more than that of any key, and no more than its limit. So the least offer at
which it reaches a level can be read off: it is what it then takes of the dominant key beyond the guarantee. Turned
around, that is its answer to an offer, and the answers of children, stretched by weights and added, are the function of
the parent. Each is kept as a list of points, made once, so nothing is searched for but the level at which the root stops.
The way down reads the same lists.

Where the dominant key stands still while another rises, the answer jumps, and exactly at the jump the lower value counts.
A limit below the demand stops an account, with all below it, on all keys. Of no offer at all an account takes the most
that its guarantee covers.

**Numbers.** A share is a whole number of 1/scale, and the scale is a multiple of every capacity, so all inputs are exact.
What must be rounded (a level divided by a weight, a point where two lines cross) is rounded at the 72nd bit or further
down. Levels of siblings that are all but equal are made equal, so that rounding does not decide which of two jumps comes
first. Where children would exceed their parent's share by the last digit, its level is lowered until they do not.
"""
