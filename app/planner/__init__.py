"""The planner: a snapshot of one pool in, a plan of preemptions out. Pure: no Redis, no clock, no randomness except from a
seed.

A planning pass (`planning_pass.py`) has numbered steps: orphaned victims, accounts over a limit, holds that do not suffice,
waiters in queue order. Each step is applied to a projection of the pool (`projection.py`) before the next one is judged.
A victim has not left yet, but every request is judged as if all victims had left. So no units are preempted twice for one
shortage.

Each module has one concern:

- `account_tree.py`   paths, effective limits, the lowest common account of two policies
- `reserved_stack.py`  the allocations of one account in the order that fills its reserved amounts, and the edge to the borrowed
  ones
- `allocation_classes.py`  allocations that every rule treats alike
- `borrowing.py`      the stacks and classes of the whole pool, updated when an allocation is preempted or reprieved
- `projection.py`     the accounts now and after all victims have left: shortages, unused shares, holds
- `decisions.py`      every outcome and every reason, each with its sentence

`preemption/` implements the disciplines `reserved` and `classes`:

- `rules.py`          one object per rule: it returns a permit or a reason; a discipline is a list of rules
- `protection.py`     the protections of an allocation from every waiter
- `candidates.py`     the candidates of each policy, judged once for all waiters with equal views
- `ordering.py`       the order of candidates of each discipline
- `attempt.py`        the attempt of one waiter: its view of each policy, its candidates
- `victim_selection.py`  the set of victims: take candidates in order, drop the unnecessary ones, search other sets
- `cost.py`           the cost of preempting an allocation, in GPU-minutes
- `budget.py`         the bounds on the preemptions of a pool and on the victims of a decision
- `over_limit.py`     the evictions of accounts over a limit
- `over_limit_preview.py`  the same evictions before they are due, for plans and dry runs

`fair_share/` decides by fair shares, on the same projection:

- `water_filling.py`  the division of the pool (the package's docstring explains it)
- `pool_shares.py`    the fair shares of this pool in one state: the present one or a future one
- `publication.py`    the statuses kept beside the accounts, for the scripts that grant and for the next pass
- `rules.py`          the rule of starvation
- `attempt.py`        the attempt of one waiter

`estimates/` simulates the queue to estimate the start times of waiters.

A rule reads a `PreemptorView` (the properties of the waiter, and of the accounts between the two policies) and the
`VictimTraits`. So a rule is asked once per pair of view and traits, not once per allocation, and its answer is cached. When an
allocation leaves, the edge of a stack moves past the few allocations whose side changes. Only these allocations get another
class. The units that a policy could give are summed per class, so a waiter for which all candidates do not suffice is refused
before candidates are sorted. Candidates are listed lazily. No cost grows with the square of the number of allocations.

A plan has a `Decision` with its reason for every waiter that was judged. Each decision can list, for every allocation, the
rule that allows its preemption, or the reason of each rule that does not.
"""
