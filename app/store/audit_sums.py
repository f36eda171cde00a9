"""The audit of sums: the numbers of accounts and holds are compared with the sums over allocations, holds and children.

1. Note the change number of the pool, and read its allocations, waiters, owners of holds, groups and policies page by page.
2. Read the changed rows again, a bounded part at a time, until no more have changed: then all rows are of one moment.
3. Compare. If sums differ, repeat 1 to 3: a difference counts if both reads agree on it.
4. A repair adds the difference to the stored number, so that changes made meanwhile are kept. It is refused if the pool was
   declared or repaired since, because another process may have made the repair.

A pool that changes too fast is not compared; a warning in the log says so.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from app.domain import amounts
from app.domain.amounts import Amounts
from app.domain.models import AuditFinding
from app.store.codec import to_mapping
from app.store.scripts import Scripts, scan_pages

log = logging.getLogger(__name__)

MAX_TRIES = 3
"""The most attempts to read a pool."""
MAX_CHANGE_PAGES = 100
"""The most scripts that read changes in one attempt; a pool that needs more changes too fast."""
SUM_COLUMNS = ("used", "fixed", "leaving", "victim_held", "patience_held", "children_reserved", "reserving_accounts")
"""The columns of an account that are sums."""
SUM_PREFIXES = tuple(f"{column}:" for column in SUM_COLUMNS)

ORPHANS = "orphaned_victims"
"""The field of a pool with the number of its orphaned victims."""

QUEUE_LENGTH = "queue_length"
"""The field of a policy with the number of its waiters in the queue of the pool."""
COUNTS = (ORPHANS, QUEUE_LENGTH)

Sums: TypeAlias = dict[str, Counter[str]]
"""Account or hold → field → sum."""
Row: TypeAlias = Sequence[Any]


class Difference(NamedTuple):
    """A sum that differs from the stored number. None is a field that does not exist."""

    place: str
    """The account, or `hold:` and the owner."""
    field: str
    stored: int | None
    expected: int | None

    def finding(self, pool: str) -> AuditFinding:
        """Return the text of the finding."""
        kind, place, column = (
            ("hold", "", self.field) if self.place.startswith("hold:") else ("account", self.place, self.field)
        )
        location = " ".join(part for part in (pool, place, column.replace(":", " ")) if part)
        expected = "0" if self.expected is None else str(self.expected)
        return AuditFinding(kind, location, str(self.stored or 0), expected)

    def correction(self) -> tuple[str, str, str, bool]:
        """Return the correction for the script `repair_sums`."""
        return self.place, self.field, str((self.expected or 0) - (self.stored or 0)), self.expected is None


@dataclass(slots=True)
class PoolSums:
    """The rows of a pool at one moment, which are added up."""

    pool: str
    allocations: dict[str, Row] = field(default_factory=dict)
    """Allocation → component, whether it is fixed, amounts, and the owner of the hold for which it leaves."""
    holds: dict[str, Row] = field(default_factory=dict)
    """Owner of a victim hold → component, amounts, fields of the hold."""
    accounts: dict[str, dict[str, str]] = field(default_factory=dict)
    waiters: dict[str, Row] = field(default_factory=dict)
    """Waiter in the queue of the pool → component."""
    patience: Row = ()

    def update(self, fields: Mapping[str, Any]) -> None:
        """Replace rows by newer ones; the row of an ended request is removed."""
        for name, rows in (("allocations", self.allocations), ("holds", self.holds), ("waiters", self.waiters)):
            for id_, *row in fields.get(name, ()):
                if row:
                    rows[id_] = row
                else:
                    rows.pop(id_, None)
        for name, flat in fields.get("accounts", ()):
            if flat:
                self.accounts[name] = to_mapping(flat)
            else:  # an instance of a template
                self.accounts.pop(name, None)

    def account_differences(self) -> list[Difference]:
        """Return the columns of accounts that differ from their sums."""
        sums: Sums = {account: Counter() for account in self.accounts}
        for component, is_fixed, resources, owner in self.allocations.values():
            columns = [column for column, counts in (("used", True), ("fixed", is_fixed), ("leaving", owner)) if counts]
            self._add(sums, component, columns, amounts.decode(resources))
            if owner == "-":
                sums["pool"][ORPHANS] += 1
        for component, resources, flat in self.holds.values():
            self._add_hold(sums, component, amounts.decode(resources), to_mapping(flat))
        for (component,) in self.waiters.values():
            if f"policy:{component}" in sums:
                sums[f"policy:{component}"][QUEUE_LENGTH] += 1
        if self.patience:
            _, component, resources = self.patience
            self._add(sums, component, ("patience_held",), amounts.decode(resources))
        for account in self.accounts:
            self._add_reserved(sums, account)
        return [
            difference
            for account, fields in sorted(self.accounts.items())
            for difference in _differences(account, _stored(fields), sums[account])
        ]

    def hold_differences(self) -> list[Difference]:
        """Return the holds that expect other units than their victims have."""
        paths = {owner: frozenset(self._path(row[0])) for owner, row in self.holds.items()}
        owner_amounts = {owner: amounts.decode(row[1]) for owner, row in self.holds.items()}
        sums: Sums = {owner: Counter() for owner in self.holds}
        for component, _, resources, owner in self.allocations.values():
            if owner in self.holds:
                for account in paths[owner].intersection(self._path(component)):
                    for key, units in amounts.decode(resources).items():
                        if key in owner_amounts[owner]:
                            sums[owner][f"expected|{account}|{key}"] += units
        return [
            difference
            for owner, (_, _, flat) in sorted(self.holds.items())
            for difference in _differences(
                f"hold:{owner}",
                {name: int(units) for name, units in to_mapping(flat).items() if name.startswith("expected|")},
                sums[owner],
            )
        ]

    def _path(self, component: str) -> list[str]:
        """Return the accounts from the policy of a component up to the pool; empty if the component has no policy."""
        name, path = f"policy:{component}", list[str]()
        while name in self.accounts and name not in path:
            path.append(name)
            name = self._parent(name)
        return path

    def _parent(self, account: str) -> str:
        kind, fields = account.partition(":")[0], self.accounts[account]
        group = fields.get({"policy": "group", "group": "parent"}.get(kind, ""))
        return f"group:{group}" if group else "pool" if account != "pool" else ""

    def _add(self, sums: Sums, component: str, columns: Iterable[str], units: Amounts) -> None:
        for account in self._path(component):
            for column in columns:
                for key, count in units.items():
                    sums[account][f"{column}:{key}"] += count

    def _add_hold(self, sums: Sums, component: str, units: Amounts, fields: Mapping[str, str]) -> None:
        for account in self._path(component):
            for key, count in units.items():
                expected = int(fields.get(f"expected|{account}|{key}", 0))
                sums[account][f"victim_held:{key}"] += max(0, count - expected)

    def _add_reserved(self, sums: Sums, account: str) -> None:
        fields = self.accounts[account]
        for name, value in fields.items():
            column, _, key = name.partition(":")
            if account != "pool" and column == "reserved" and int(value) > 0 and "template" not in fields:
                sums[self._parent(account)][f"children_reserved:{key}"] += int(value) * int(fields.get("reserved_times", 1))
                sums["pool"][f"reserving_accounts:{key}"] += 1


def _stored(fields: Mapping[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in fields.items() if name in COUNTS or name.startswith(SUM_PREFIXES)}


def _differences(place: str, stored: Mapping[str, int], sums: Mapping[str, int]) -> Iterator[Difference]:
    for name in sorted({*stored, *sums}):
        if stored.get(name, 0) != sums.get(name, 0):
            yield Difference(place, name, stored.get(name), sums.get(name))


class SumsAudit:
    """The comparison of sums, and their repair."""

    def __init__(self, scripts: Scripts, chunk: int) -> None:
        self._scripts, self._chunk = scripts, chunk

    def check(
        self, workspace: str, pool: str, compare: Callable[[PoolSums], list[Difference]], *, repair: bool
    ) -> list[AuditFinding]:
        """Return the differences in a pool; empty if the pool changes too fast."""
        earlier: list[Difference] = []
        for _ in range(MAX_TRIES):
            rules, sums = self._read(workspace, pool)
            if sums is None:
                continue
            differences = compare(sums)
            if not differences:
                return []
            agreed = [difference for difference in differences if _is_among(difference, earlier)]
            if agreed and (not repair or self._repair(workspace, pool, rules, agreed)):
                return [difference.finding(pool) for difference in agreed]
            earlier = differences
        log.warning("audit: pool %s of workspace %s changes too fast to be compared", pool, workspace)
        return []

    def _read(self, workspace: str, pool: str) -> tuple[str, PoolSums | None]:
        """Return the version of the pool's rules, and its rows of one moment. None: the pool changes too fast. Empty rows: it
        is deleted."""
        started, sums = self._scripts.call("start_sums", workspace, pool=pool), PoolSums(pool)
        if started.tag != "started":
            return "", sums
        for kind in ("allocations", "holds", "waiters"):
            for page in scan_pages(self._scripts, "read_sum_rows", workspace, pool=pool, kind=kind, count=self._chunk):
                sums.update({kind: page.fields["rows"]})
        for kind in ("group", "policy"):
            for page in scan_pages(self._scripts, "read_accounts", workspace, pool=pool, kind=kind, count=self._chunk):
                sums.update(page.fields)
        rules, position = started.fields["rules"], {name: started.fields[name] for name in ("event", "number")}
        for _ in range(MAX_CHANGE_PAGES):
            reply = self._scripts.call("read_sum_changes", workspace, pool=pool, rules=rules, most=self._chunk, **position)
            if reply.tag != "read":
                break
            sums.update(reply.fields)
            position = {name: reply.fields[name] for name in position}
            if reply.fields["more"] != "1":
                sums.accounts["pool"], sums.patience = to_mapping(reply.fields["pool"]), reply.fields["patience"]
                return rules, sums
        return rules, None

    def _repair(self, workspace: str, pool: str, rules: str, differences: Sequence[Difference]) -> bool:
        corrections = json.dumps(
            [
                [place, name, by, "1" if may_delete else ""]
                for place, name, by, may_delete in map(Difference.correction, differences)
            ]
        )
        return self._scripts.call("repair_sums", workspace, pool=pool, rules=rules, corrections=corrections).tag == "repaired"


def _is_among(difference: Difference, others: Iterable[Difference]) -> bool:
    """True if another read found the same excess or lack of units."""
    return any(difference.correction()[:3] == other.correction()[:3] for other in others)
