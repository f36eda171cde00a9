"""The planner: a snapshot of one pool in, a plan of preemptions out. Pure: no Redis, no clock, no randomness but a seed.

The plan is made in one pass (`planning_pass.py`) of numbered steps: orphaned victims, accounts over a limit, holds that
do not suffice, waiters in queue order. Each step is applied to a projection of the pool before the next one is judged
(`projection.py`). A victim has not left yet, but every request is judged as it will be when all victims have left. So no
shortage is paid for twice.

One concern a module:

- `account_tree.py`   paths, effective limits, the lowest common account of two policies
- `reserved_stack.py`  the allocations of one account as they fill its reserved amounts, and the edge between share and borrowed
- `allocation_classes.py`  allocations that no rule can tell apart
- `borrowing.py`      the stacks and classes of the whole pool, kept up to date as victims leave and come back
- `projection.py`     the accounts now and when all victims have left: shortages, unused shares, holds
- `decisions.py`      every outcome and every reason, each with its sentence

`preemption/` holds the disciplines `reserved` and `classes`:

- `rules.py`          one object per rule: a permit, or the reason why not; a discipline is a list of rules
- `protection.py`     what protects an allocation from every waiter
- `candidates.py`     what each waiter may take of each policy, judged once for all policies that look alike to it
- `ordering.py`       the order of candidates of each discipline
- `attempt.py`        one waiter's attempt: its view of each policy, its candidates
- `victim_selection.py`  the set of victims: take in order, give back, search other sets
- `cost.py`           what stopping an allocation costs, in GPU-minutes
- `budget.py`         how often a pool preempts, and how many victims a decision may have
- `over_limit.py`     what has to leave because an account is over its limit
- `over_limit_preview.py`  the same before it is due, for plans and dry runs

`fair_share/` decides the same question by fair shares, over the same projection:

- `water_filling.py`  the division of the pool (the package's docstring explains it)
- `pool_shares.py`    the fair shares of this pool, for one state of it: as it is, or as it will be
- `publication.py`    the statuses kept beside the accounts, for the scripts that grant and for the next pass
- `rules.py`          the rule of starvation
- `attempt.py`        one waiter's attempt

`estimates/` simulates the queue to tell when a waiter may start.

A rule sees a `PreemptorView` (all that it may know of the waiter and of the accounts between the two policies) and the
`VictimTraits`. So a rule is asked once per pair of them, not once per allocation, and the answer is kept. When an
allocation leaves, the edge of a stack moves past the few allocations whose side changes; only those get another class.
The units that a policy could give are summed per class, so a waiter without any chance is refused before a candidate is
put in order. Candidates come in order lazily. No cost grows with the square of the number of allocations.

Reasons are kept: a plan has a `Decision` for every waiter that was judged, and each can list, for every allocation, the
rule that allowed it or why none did.
"""
