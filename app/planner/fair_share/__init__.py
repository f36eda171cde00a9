"""Fair share: what part of a pool everybody under it is due, who has been below that for too long, what may be taken for them.

Amounts in, shares out. Pure: no Redis, no clock, no chance. A share is a fraction of the pool's capacity of a key, and a
division is about all keys at once: who wants a lot of one key is served no further of the others than as goes with it.

- `tree.py`        who shares a pool, in whole units
- `given.py`       what is given of every node in shares: usage, demand, limit, guarantee and what is inferred of it
- `curves.py`      piecewise linear functions: how they are added, and how a node answers what it is offered
- `division.py`    the division: curves from the leaves up, then levels from the root down
- `measures.py`    how a node stands to its share: satisfaction, and whether it is below
- `starvation.py`  the settings that are inherited, and the state of one who is below for so long
- `split.py`       which of a leaf's running work is protected, and from whom

**How a pool is divided.** Every node has a function of its own: what it takes at a level. A leaf fills all keys alike until
each has what runs, then goes straight to all that it wants. A fair share branch offers each child its level times its weight,
a fifo branch the whole to one child after the other. Offered so much on top of its guarantee, a node goes to the highest level
at which it takes no more than that of any key, and no more than its limit. So the least offer at which it reaches a level can
be read off: it is what it then takes of the dearest key beyond the guarantee. Turned around, that is what it answers to an
offer, and the answers of children, stretched by weights and added, are the function of the one above. Each is kept as a list
of points, made once, so nothing is searched for but the level at which the root stops. The way down reads the same lists.

Where the dearest key stands still while another rises, the answer jumps, and exactly at the jump the lower value counts. A
limit below the demand stops a node, with all below it, on all keys. Of no offer at all a node takes the most that its
guarantee covers.

**Numbers.** A share is a whole number of 1/scale, and the scale is a multiple of every capacity, so whatever is given is
exact. What must be rounded (a level divided by a weight, a point where two lines cross) is rounded at the 72nd bit or further
down; levels of siblings that are all but equal are made equal, so that rounding does not decide which of two jumps comes
first. Where children would exceed by the last digit what their parent was promised, its level is lowered until they do not.
"""
