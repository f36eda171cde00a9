"""The codec of a snapshot: the rows of the scripts that read it are decoded to the planner's input.

The grant writes one line for each allocation, and only a checkpoint changes it. So a line that was decoded for an earlier
snapshot of the pool is not decoded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from operator import attrgetter
from typing import Any, TypeAlias

from app.domain import amounts
from app.domain.pool_settings import ACCOUNT_SETTINGS, DEFAULT_DISCIPLINE, DEFAULT_MODE, DEFAULT_PROFILE, default_value
from app.domain.queue_score import MAX_AMOUNT
from app.domain.snapshot import (
    AccountSnapshot,
    Allocation,
    HoldSnapshot,
    PlannerSettings,
    PolicyDemand,
    PoolSnapshot,
    PublishedStatus,
    Waiter,
)
from app.store.codec import FlatHash, decode_shape_pools, to_mapping

AllocationCache: TypeAlias = dict[str, tuple[str, Allocation]]
"""The allocations of a pool by id, each with the line from which it was decoded."""

Rows: TypeAlias = Sequence[Sequence[str]]

WATCHED_ANEW = "anew"
"""The value of `watched` of a pool that had another discipline meanwhile, so that its stored starvation is void."""


def decode_allocations(flat: FlatHash, cache: AllocationCache) -> AllocationCache:
    """Return the allocations of a hash of lines."""
    lines = iter(flat)
    return {
        id_: entry if (entry := cache.get(id_)) and entry[0] == line else (line, _decode_allocation(id_, line))
        for id_, line in zip(lines, lines, strict=True)
    }


def decode_demand(*parts: Rows) -> dict[str, PolicyDemand]:
    """Return component → its demand. The parts of a component that occurs several times are added."""
    sums: dict[str, tuple[int, dict[str, int]]] = {}
    for component, waiting, *flat in (row for rows in parts for row in rows):
        count, units = sums.get(component, (0, {}))
        for key, amount in to_mapping(flat).items():
            units[key] = min(MAX_AMOUNT, units.get(key, 0) + int(amount))
        sums[component] = count + int(waiting), units
    return {component: PolicyDemand(count, units) for component, (count, units) in sums.items()}


@dataclass(slots=True)
class PoolRows:
    """The rows of a pool that a reader keeps between two snapshots, decoded."""

    allocations: AllocationCache = field(default_factory=dict)
    victims: dict[str, str] = field(default_factory=dict)
    """Preempting allocation → owner of its hold."""
    accounts: dict[str, AccountSnapshot] = field(default_factory=dict)
    """The groups and policies."""

    def replace_all(self, fields: Mapping[str, Any]) -> None:
        """Replace all rows by the rows of a whole pool."""
        self.allocations = decode_allocations(fields["allocations"], self.allocations)
        self.victims = to_mapping(fields["victims"])
        self.accounts = {}
        self.update_accounts(fields["accounts"])

    def update(self, fields: Mapping[str, Any]) -> None:
        """Replace the rows of some ids; an id without a row is removed."""
        words = iter(fields["allocations"])
        for id_, line in zip(words, words, strict=True):
            self.victims.pop(id_, None)
            if not line:
                self.allocations.pop(id_, None)
            elif id_ not in self.allocations or self.allocations[id_][0] != line:
                self.allocations[id_] = line, _decode_allocation(id_, line)
        self.victims.update(to_mapping(fields["victims"]))
        self.update_accounts(fields.get("accounts", ()))

    def update_accounts(self, rows: Iterable[tuple[str, FlatHash]]) -> None:
        """Replace the rows of some groups and policies."""
        for name, flat in rows:
            if flat:
                self.accounts[name] = decode_account(name, flat)
            else:
                self.accounts.pop(name, None)

    def is_complete(self, fields: Mapping[str, Any]) -> bool:
        """True if there are as many rows as the pool has allocations and accounts."""
        return [len(self.allocations), len(self.accounts)] == [int(count) for count in fields["counts"]]

    def remove_contradictions(self) -> None:
        """Remove rows that cannot be of one moment: an account without its parent, an allocation without its policy."""
        while orphans := [name for name, account in self.accounts.items() if account.parent not in {"pool", *self.accounts}]:
            for name in orphans:
                del self.accounts[name]
        for id_ in [id_ for id_, (_, each) in self.allocations.items() if f"policy:{each.component}" not in self.accounts]:
            del self.allocations[id_]


def decode_snapshot(
    pool: str, fields: Mapping[str, Any], rows: PoolRows, waiters: Rows, demand: Mapping[str, PolicyDemand]
) -> PoolSnapshot:
    """Return the snapshot of the rows of a pool, and of the fields of the script's reply about the rest of it."""
    settings, leaving = to_mapping(fields["pool"]), rows.victims
    accounts = {"pool": decode_account("pool", fields["pool"]), **dict(sorted(rows.accounts.items()))}
    allocations = [allocation for _, allocation in rows.allocations.values()]
    if leaving:
        allocations = [
            replace(allocation, leaving_for=leaving[allocation.id].strip("-")) if allocation.id in leaving else allocation
            for allocation in allocations
        ]
    allocations.sort(key=attrgetter("fence"))
    waiting = sorted(waiters, key=lambda row: (int(row[6]), int(row[3])))
    return PoolSnapshot(
        pool=pool,
        now_ms=int(fields["now"]),
        rules_version=settings.get("rules", "0"),
        settings=_planner_settings(settings),
        accounts=accounts,
        allocations=tuple(allocations),
        waiters=tuple(decode_waiter(row) for row in waiting),
        holds=tuple(HoldSnapshot(decode_waiter(row), _decode_freed_units(units)) for row, units in fields["holds"] if row),
        preemptions_last_minute=int(fields["preemptions"]),
        last_decision_ms=int(settings["decided_ms"]) if "decided_ms" in settings else None,
        first_blocked_score=int(fields["line"]) if fields["line"] else None,
        demand=demand,
        is_watched=settings.get("watched", "0") != "0",
        has_void_starvation=settings.get("watched") == WATCHED_ANEW,
        patience_hold_owner=settings.get("patience", ""),
        preferred_pools={component: tuple(before) for component, *before in fields["preferred"]},
    )


_PARENT_FIELDS = {"group": "parent", "policy": "group"}


def decode_account(name: str, flat: FlatHash) -> AccountSnapshot:
    """Return an account from its hash; `name` is its name in the ledger, such as `group:<name>`."""
    parent_field = _PARENT_FIELDS.get(name.partition(":")[0])
    words = iter(flat)
    columns: dict[str, dict[str, int]] = {name: {} for name in AMOUNT_COLUMNS}
    fields: dict[str, str] = {}
    for name_of_field, value in zip(words, words, strict=True):
        column, _, key = name_of_field.partition(":")
        if not key:
            fields[name_of_field] = value
        elif column in columns:
            columns[column][key] = int(value)
    parent = fields.get(parent_field) if parent_field else None
    return AccountSnapshot(
        name=name,
        parent=f"group:{parent}" if parent else "pool" if parent_field else None,
        reserved=columns["reserved"],
        limit=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        units_on_hold=columns["victim_held"],
        stack_exits=columns["stack_exits"],
        priority=int(fields.get("priority", 0)),
        profile=fields.get("profile", DEFAULT_PROFILE),
        weight=int(fields.get("weight", 1)),
        mode=fields.get("mode", DEFAULT_MODE),
        creation_number=int(fields.get("creation_number", 0)),
        settings={name: fields[name] for name in fields.keys() & ACCOUNT_SETTINGS.keys()},
        published=PublishedStatus(
            fair_shares=columns["fair_share"],
            demand_met=frozenset(columns["demand_met"]),
            starvation_status=fields.get("status", ""),
            below_ms=_optional_int(fields.get("below_ms", "")),
            over_ms=_optional_int(fields.get("over_ms", "")),
        ),
    )


def _decode_allocation(id_: str, line: str) -> Allocation:
    fence, component, kind, class_, checkpoint, minutes, walltime, granted, checkpointed, chain, resources = line.split(" ")
    return Allocation(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        fence=int(fence),
        preemptible=kind == "p",
        preemption_class=int(class_),
        checkpoint=checkpoint,
        checkpoint_minutes=_optional_int(minutes),
        walltime_s=_optional_int(walltime),
        granted_ms=int(granted),
        checkpointed_ms=_optional_int(checkpointed),
        chain=None if chain == "-" else chain,
    )


def decode_waiter(row: Sequence[str]) -> Waiter:
    """Return a waiter from a row of a script's reply."""
    id_, lane, class_, number, chain, preempted, place = row
    component, kind, resources, *tail = lane.split("|", 3)
    return Waiter(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        preemptible=kind == "p",
        preemption_class=int(class_),
        submission_number=int(number),
        chain=chain or None,
        queue_score=int(place),
        preempted_fence=_optional_int(preempted),
        pools=decode_shape_pools(tail[0]) if tail else None,
    )


def _decode_freed_units(rows: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, int]]:
    units_by_account: dict[str, dict[str, int]] = {}
    for account, key, units in rows:
        units_by_account.setdefault(account, {})[key] = int(units)
    return units_by_account


def _optional_int(text: str) -> int | None:
    return int(text) if text and text != "-" else None


AMOUNT_COLUMNS = ("limit", "reserved", "used", "fixed", "victim_held", "stack_exits", "fair_share", "demand_met")
"""The fields of an account that are amounts by resource key."""


def _planner_settings(texts: Mapping[str, str]) -> PlannerSettings:
    """Return the settings of a pool for the planner. A setting without a value has the default of the discipline."""
    discipline = texts.get("discipline") or DEFAULT_DISCIPLINE
    values: dict[str, Any] = {
        row.name: _setting_value(texts[row.name]) if texts.get(row.name) else default_value(row.name, discipline)
        for row in dataclass_fields(PlannerSettings)
    }
    return PlannerSettings(**{**values, "max_victims": values["max_victims"] or None})


def _setting_value(text: str) -> int | str:
    return int(text) if text.isdigit() else text
