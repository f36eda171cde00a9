"""What is found about the accounts of a pool and kept beside them: fair shares, who starves, who is over a limit; since when.

The scripts grant by the shares that are kept, so they are told only as far as the order needs it: of policies, and of those who
ask for something. Times are kept because no process remembers anything between two looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.domain.plan_steps import Publication, Row
from app.domain.queue_score import SHARE
from app.domain.snapshot import Account, Published, Snapshot
from app.planner.account_tree import POLICY, Tree
from app.planner.fair_share import satisfaction
from app.planner.fair_share.pool_shares import Parts
from app.planner.fair_share.starvation import State, Status, advance
from app.planner.preemption.over_limit import Limits


def states(snapshot: Snapshot, parts: Parts) -> dict[str, State]:
    """Who starves by now: account → state, of every group and policy."""
    return {name: _state(snapshot, parts, account) for name, account in snapshot.accounts.items() if account.parent is not None}


def _state(snapshot: Snapshot, parts: Parts, account: Account) -> State:
    kept, queued = account.published, None
    if account.name.startswith(POLICY):
        queued = parts.ground.waiting.get(account.name.removeprefix(POLICY), 0)
    before = State() if snapshot.lapsed else State(Status(kept.status or Status.NON_STARVING), kept.below_ms)
    patience = parts.ground.patience[account.name]
    return advance(before, parts.is_below(account.name), snapshot.now_ms, patience, queued)


def publication(snapshot: Snapshot, tree: Tree, parts: Parts | None, found: Mapping[str, State]) -> Publication | None:
    """What of it differs from what is kept; None if nothing does. `parts` is None where no fair shares count."""
    limits = Limits(snapshot, tree)
    now = {name: _now(limits, parts, found, account) for name, account in snapshot.accounts.items()}
    rows = tuple(row for name, account in snapshot.accounts.items() if (row := _row(account, now[name])))
    watched = any(one.over_ms is not None or one.below_ms is not None for one in now.values())
    return Publication(rows, watched) if rows or watched != snapshot.watched or snapshot.lapsed else None


def _now(limits: Limits, parts: Parts | None, found: Mapping[str, State], account: Account) -> Published:
    over_ms = limits.over_since(account)
    state = found.get(account.name, State())
    fair, sated = _shares(parts, account) if parts else ({}, frozenset())
    status = "" if state.status is Status.NON_STARVING else str(state.status)
    return Published(fair=fair, sated=sated, status=status, below_ms=state.below_ms, over_ms=over_ms)


def _shares(parts: Parts, account: Account) -> tuple[dict[str, int], frozenset[str]]:
    node = parts.node(account.name)
    if not account.name.startswith(POLICY) or not any(node.demand):
        return {}, frozenset()
    keys, shut = parts.division.keys, satisfaction.blocked(node.fair, node.demand, parts.scale)
    fair = {key: due * SHARE // parts.scale for key, due in zip(keys, node.fair, strict=True)}
    return fair, frozenset(key for key, no in zip(keys, shut, strict=True) if no)


def _texts(kept: Published) -> dict[str, str]:
    """As it is kept, field → text."""
    texts = {f"fair:{key}": str(due) for key, due in kept.fair.items()}
    texts |= {f"sated:{key}": "1" for key in sorted(kept.sated)}
    texts |= {"status": kept.status} if kept.status else {}
    return texts | dict(_times(kept))


def _times(kept: Published) -> Iterator[tuple[str, str]]:
    if kept.below_ms is not None:
        yield "below_ms", str(kept.below_ms)
    if kept.over_ms is not None:
        yield "over_ms", str(kept.over_ms)


def _row(account: Account, now: Published) -> Row | None:
    if now == account.published:
        return None
    before, after = _texts(account.published), _texts(now)
    said = tuple((field, text) for field, text in after.items() if before.get(field) != text)
    return Row(account.name, said, tuple(field for field in before if field not in after))
