"""A preemption in parts: each script preempts as many of the remaining victims as its work budget allows, for one hold.

Each part is checked like the whole decision: its victims and the planned units of the rest have to suffice. Between two parts
the hold does not suffice. If the process dies there, the next reconcile judges the owner again: it plans further victims, or
ends the hold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from app.domain.plan_steps import BorrowedCondition, Preempt, UsageCondition, Victim
from app.domain.snapshot import PoolSnapshot
from app.store.scripts import Arg

VICTIMS_PER_CALL = 30
"""The most victims of one part."""

Units: TypeAlias = Counter[tuple[str, str]]
"""(Account, key) → units."""


def encode_part(snapshot: PoolSnapshot, step: Preempt) -> dict[str, Arg]:
    """Return the arguments of the script that takes the first victims of a step."""
    victims, rest = step.victims[:VICTIMS_PER_CALL], step.victims[VICTIMS_PER_CALL:]
    borrowed, usage, units = step.borrowed_conditions, step.usage_conditions, Units()
    if rest or step.continues:
        own_accounts = _path(snapshot, _component_of_waiter(snapshot, step.waiter))
        accounts = {account for _, path, _ in _allocations(snapshot, victims) for account in path} | set(own_accounts)
        borrowed = _strictest(condition for condition in borrowed if condition.account in accounts)
        usage = tuple(condition for condition in usage if condition.account in accounts)
        units = _sum_units(snapshot, rest, own_accounts)
    return {
        "waiter": step.waiter,
        "victims": json.dumps([(victim.request, str(victim.fence), victim.trigger) for victim in victims]),
        "continues": step.continues,
        "rest_count": len(rest),
        "rest_units": json.dumps({f"{account}|{key}": str(count) for (account, key), count in units.items()}),
        "unused_share_accounts": json.dumps(step.unused_share_accounts),
        "reserved_accounts": json.dumps(step.reserved_accounts),
        "stack_exits": json.dumps([(each.account, each.key, str(each.max_stack_exits)) for each in borrowed]),
        "used_ranges": json.dumps([(each.account, each.key, str(each.min_units), str(each.max_units)) for each in usage]),
    }


def rest_of_step(snapshot: PoolSnapshot, step: Preempt, begun: int, exited: Collection[str]) -> Preempt | None:
    """Return the step that takes the victims after the first `begun`; None if there are none.

    The conditions of the step describe the pool before this part. So they are adjusted by the units of its victims: each victim
    has left its stack, and the `exited` ones use no units any more.
    """
    begun_victims, rest = step.victims[:begun], step.victims[begun:]
    if not rest:
        return None
    out_of_stacks = _sum_units(snapshot, begun_victims)
    out_of_use = _sum_units(snapshot, [victim for victim in begun_victims if victim.request in exited])
    return replace(
        step,
        victims=rest,
        continues=True,
        borrowed_conditions=tuple(_with_more_exits(condition, out_of_stacks) for condition in step.borrowed_conditions),
        usage_conditions=tuple(_with_less_use(condition, out_of_use) for condition in step.usage_conditions),
    )


def _with_more_exits(condition: BorrowedCondition, units: Units) -> BorrowedCondition:
    return replace(condition, max_stack_exits=condition.max_stack_exits + units[condition.account, condition.key])


def _with_less_use(condition: UsageCondition, units: Units) -> UsageCondition:
    return replace(condition, min_units=max(0, condition.min_units - units[condition.account, condition.key]))


def _strictest(conditions: Iterable[BorrowedCondition]) -> tuple[BorrowedCondition, ...]:
    """Return one condition for each account and key, the strictest, which implies the others."""
    strictest: dict[tuple[str, str], BorrowedCondition] = {}
    for condition in conditions:
        place = condition.account, condition.key
        if place not in strictest or condition.max_stack_exits < strictest[place].max_stack_exits:
            strictest[place] = condition
    return tuple(strictest.values())


def _sum_units(snapshot: PoolSnapshot, victims: Iterable[Victim], accounts: Collection[str] | None = None) -> Units:
    """Return the units that victims hold at all accounts, or only at `accounts`."""
    units = Units()
    for _, path, amounts in _allocations(snapshot, victims):
        for account in path:
            if accounts is None or account in accounts:
                units.update({(account, key): amount for key, amount in amounts})
    return units


def _allocations(
    snapshot: PoolSnapshot, victims: Iterable[Victim]
) -> Iterator[tuple[str, list[str], Collection[tuple[str, int]]]]:
    """Yield the id, the path and the amounts of each victim."""
    ids = {victim.request for victim in victims}
    for allocation in snapshot.allocations:
        if allocation.id in ids:
            yield allocation.id, _path(snapshot, allocation.component), allocation.amounts.items()


def _component_of_waiter(snapshot: PoolSnapshot, id_: str) -> str:
    waiters = (*snapshot.waiters, *(hold.owner for hold in snapshot.holds))
    return next((waiter.component for waiter in waiters if waiter.id == id_), "")


def _path(snapshot: PoolSnapshot, component: str) -> list[str]:
    """Return the accounts from a policy to the pool; none if the pool has no such policy."""
    path, account = [], snapshot.accounts.get(f"policy:{component}")
    while account is not None:
        path.append(account.name)
        account = snapshot.accounts.get(account.parent) if account.parent else None
    return path
