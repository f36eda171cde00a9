"""Who is preempted for whom: a snapshot of one pool in, a plan out. Pure: no Redis, no clock, no chance.

The plan is made in one pass (`plan.py`), in numbered steps: those who leave for nobody any more, what is over a limit, the
holds that will not suffice, the waiters in queue order. Each step is simulated before the next is judged, in books of their own
(`books.py`): nobody has left yet who is told to leave, but all are judged as it will be when they have, so no shortage is paid
for twice.

What is judged is cut small:

- `tree.py`    who is below whom, which limits count, where two policies meet
- `stacks.py`  one account's allocations as they fill its reserved, and the edge between share and borrowed
- `kinds.py`   allocations that no rule tells apart
- `shares.py`  the stacks and kinds of the whole pool, as people leave and come back
- `books.py`   the accounts as they are and as they will be: what an ask is short of, what of a share is unused, who has holds
- `protection.py`  what keeps an allocation from being stopped whoever asks
- `rules.py`   one small object per rule: who may take from whom, else the reason why not; a discipline is a list of them
- `cost.py`    what stopping somebody costs, in GPU-minutes
- `court.py`   what a waiter may take of each policy, judged once for all who stand to it alike
- `case.py`    one ask laid before the rules: how the waiter stands to each policy, and who could be taken
- `victims.py` who of those it is: take in order, give back what is not needed, look at other sets if the first may not be
- `budget.py`  how often a pool preempts, and how many at a time
- `limits.py`  who is over a limit, since when, and what has to leave for it, for nobody's sake
- `verdicts.py`  every "no" with its name and its sentence

By fair share other rules decide, over the same books:

- `fairness/`   who is due what part of a pool, how satisfied it is, whether it starves, what of its work may be taken: numbers
- `parts.py`    the division of this pool, for one state of it: as it is, or as it will be
- `publishing.py`  what of it is kept beside the accounts, for the scripts that grant and for the next look
- `starving.py` who may take, and what of others: one state of the pool as a scene
- `fair_case.py`  one ask laid before these rules, as `case.py` does before the others

A rule sees nothing but a `Standing` (all that it may know of the waiter and of where the two policies meet) and a `Kind`. So it
is asked once per pair of them, not once per allocation, and its answer is kept. When somebody leaves, the edge of a stack moves
past the few whose side changes, and only those become another kind. What a policy could give at most is summed up per kind, so
a waiter without hope is refused before any candidate is put in order; candidates come in order lazily, and only as many as are
needed. Nothing here grows with the square of what runs.

Reasons are not thrown away: a plan keeps a `Decision` for everybody who was judged, and each can still say, for every
allocation, which rule allowed it or why none did.
"""
