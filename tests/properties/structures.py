"""What every key must hold, derived from the plain facts: the whole of Redis is explained, or what differs is told.

`faults` yields what is wrong at any time, unfinished work or not. Places and scores are judged by the order they make, and
only where nothing is unfinished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from app.domain.pool_settings import AccountSettings, PoolSettings
from app.domain.queue_score import CLASS_COUNT, MAX_SUBMISSIONS, PRIORITY_COUNT
from tests.properties.oracle import BOUNDLESS, FOR_NONE, LIVE, NOBODY, Model, Request
from tests.properties.reading import hold_column
from tests.properties.snapshot import Snapshot, columns

NOTED = 3
"""How many notes of its use are kept of a pool here."""
FINAL = {"preempted", "released", "expired", "cancelled", "rejected"}
POOL_COLUMNS = {"limit", "used", "fixed", "patience_held", "victim_held", "children_reserved", "reserving_accounts"}
COLUMNS = {
    "limit",
    "reserved",
    "used",
    "fixed",
    "patience_held",
    "victim_held",
    "stack_exits",
    "children_reserved",
    "fair_share",
    "demand_met",
}
MARKS = {
    "patience",
    "reviewing",
    "unsettled",
    "rules",
    "decided_ms",
    "victim_holds",
    "last_hold_number",
    "last_creation_number",
    "watched",
    "over_ms",
}
POOL_FIELDS = {*PoolSettings.model_fields, *MARKS}
OWN = {"weight", "creation_number", "status", "below_ms", "over_ms", *AccountSettings.model_fields}
FIELDS = {"group": {"parent", "mode", *OWN}, "policy": {"group", "priority", "profile", *OWN}}


class Structures:
    """The keys of one snapshot beside the model read from it."""

    def __init__(self, seen: Snapshot, model: Model) -> None:
        self.seen, self.model = seen, model
        self.queued = [one for one in model.requests.values() if one.status == "queued"]

    def faults(self) -> Iterator[str]:
        """Everything that is not as it must be."""
        yield from self._states()
        yield from self._lanes()
        yield from self._components()
        yield from self._unexplained()
        yield from self._deadlines()
        for pool in self.model.pools:
            yield from self._accounts(pool)
            yield from self._members(pool)
            yield from self._parking(pool)
            yield from self._patience(pool)
            yield from self._clearings(pool)
            yield from self._shares(pool)
            yield from self._satisfied(pool)
            yield from self._runs(pool)
            yield from self._history(pool)
            if "reviewing" not in self.seen.get("pool", pool):
                yield from self._listed(pool)
                if not self.seen.get("pool_unfinished", pool):
                    yield from self._scores(pool)

    def _same(self, expected: Any, kind: str, *parts: str) -> Iterator[str]:
        found = self.seen.get(kind, *parts)
        if found != expected:
            yield f"{kind} {' '.join(parts)}: {found}, should be {expected}"

    # requests

    def _states(self) -> Iterator[str]:
        by_status: dict[str, set[str]] = {}
        for one in self.model.requests.values():
            by_status.setdefault(one.status, set()).add(one.id)
        sets = {"waiting": {"queued"}, "leases": LIVE, "ended": FINAL}
        for name, statuses in sets.items():
            expected = set().union(*(by_status.get(status, set()) for status in statuses))
            if set(self.seen.get(name)) != expected:
                yield f"{name}: {sorted(self.seen.get(name))}, should be {sorted(expected)}"
        if set(by_status) - {"queued"} - LIVE - FINAL:
            yield f"states that do not exist: {sorted(by_status)}"
        yield from self._same({one.id: one.number for one in self.model.requests.values()}, "requests")
        for (id_,), fields in self.seen.of("request"):
            yield from self._times(id_, fields)

    def _times(self, id_: str, fields: dict[str, str]) -> Iterator[str]:
        status, now = fields["status"], self.seen.now_ms
        if status in FINAL and self.seen.get("ended").get(id_) != int(fields["ended_ms"]):
            yield f"{id_} ended at {fields['ended_ms']}, by `ended` at {self.seen.get('ended').get(id_)}"
        for name, of, since in (("waiting", "queue_ttl_s", "submitted_ms"), ("leases", "lease_s", "granted_ms")):
            if id_ in self.seen.get(name):
                at, length = self.seen.get(name)[id_], fields.get(of)
                first = int(fields[since]) + int(length) * 1000 if length else BOUNDLESS
                last = now + int(length) * 1000 if length else BOUNDLESS
                if not first <= at <= last:
                    yield f"{name} {id_}: {at} is not from {first} to {last}"

    def _lanes(self) -> Iterator[str]:
        lanes: dict[str, list[Request]] = {}
        for one in self.queued:
            lanes.setdefault(one.lane, []).append(one)
        found = {parts[0] for parts, _ in self.seen.of("lane")}
        if found != set(lanes):
            yield f"lanes: {sorted(found)}, should be {sorted(lanes)}"
        for lane, members in lanes.items():
            inner = {one.id: (CLASS_COUNT - 1 - one.rank) * MAX_SUBMISSIONS + one.number for one in members}
            yield from self._same(inner, "lane", lane)
            yield from self._same({one.id: one.walltime_s for one in members if one.walltime_s}, "lane_walltimes", lane)
        for component in {one.component for one in self.model.requests.values()}:
            own = {lane for lane in lanes if lane.startswith(component + "|")}
            yield from self._same(own, "component_lanes", component)
        if not self.seen.get("orphaned_lanes") <= set(lanes):
            yield f"orphans that are no lanes: {self.seen.get('orphans') - set(lanes)}"

    def _components(self) -> Iterator[str]:
        yield from (
            self._same(set(self.model.pools), "unfinished") if not self.seen.get("unfinished") <= set(self.model.pools) else ()
        )
        if set(self.seen.get("pools")) != set(self.model.pools):
            yield f"pools: {self.seen.get('pools')}, should be {sorted(self.model.pools)}"
        policies: dict[str, dict[str, int]] = {}
        for name, pool in self.model.pools.items():
            for account in pool.accounts.values():
                if account.name.startswith("policy:"):
                    policies.setdefault(account.name[7:], {})[name] = -account.priority
            for kind in ("policy", "group"):
                names = {account[len(kind) + 1 :] for account in pool.accounts if account.startswith(kind + ":")}
                yield from self._same(names, "pool_policies" if kind == "policy" else "pool_groups", name)
        found = {parts[0]: value for parts, value in self.seen.of("component_pools")}
        if found != policies:
            yield f"component: {found}, should be {policies}"

    def _unexplained(self) -> Iterator[str]:
        for key in self.seen.data:
            if (key[0].startswith("pool_") or key[0] in FIELDS or key[0] == "hold") and key[1] not in self.model.pools:
                yield f"{key} of a pool that is not there"
            if key[0] in ("component_lanes", "lane_walltimes") and not self.seen.data[key]:
                yield f"{key} is empty"

    def _runs(self, pool: str) -> Iterator[str]:
        """What is kept of run times is of policies that are there, and the steps of each add up to how many there were."""
        for (at, component), counts in self.seen.of("pool_run_times"):
            steps = sum(int(count) for step, count in counts.items() if step != "all")
            known = f"policy:{component}" in self.model.pools[pool].accounts if at == pool else True
            if not known or steps != int(counts["all"]):
                yield f"run times of {component} in {at}: {counts}"

    # accounts

    def _accounts(self, pool: str) -> Iterator[str]:
        place = self.model.pools[pool]
        raw = {"pool": self.seen.get("pool", pool)}
        for name in place.accounts:
            kind, _, own = name.partition(":")
            raw[name] = self.seen.get(kind, pool, own)
        for column, sums in (("used", self.model.used(pool)), ("fixed", self.model.used(pool, fixed=True))):
            for name, fields in raw.items():
                if columns(fields, column) != +sums[name]:
                    yield f"{pool} {name} {column}: {columns(fields, column)}, should be {dict(sums[name])}"
        for name, fields in raw.items():
            promised = Counter[str]()
            for account in place.accounts.values():
                promised.update(account.reserved if (account.parent or "pool") == name else {})
            if columns(fields, "children_reserved") != +promised:
                yield f"{pool} {name} promised: {columns(fields, 'children_reserved')}, should be {promised}"
            known = POOL_FIELDS if name == "pool" else FIELDS[name.partition(":")[0]]
            of = POOL_COLUMNS if name == "pool" else COLUMNS
            strange = [field for field in fields if field.partition(":")[0] not in (of if ":" in field else known)]
            if strange:
                yield f"{pool} {name} has {strange}"
        keys = [key for account in place.accounts.values() for key, units in account.reserved.items() if units]
        if columns(raw["pool"], "reserving_accounts") != {key: keys.count(key) for key in keys}:
            yield f"{pool} reserving: {columns(raw['pool'], 'reserving_accounts')}, should be {keys}"

    def _members(self, pool: str) -> Iterator[str]:
        holders = self.model.holders(pool)
        yield from self._same({one.id: one.fence for one in holders}, "pool_allocations", pool)
        ends = {one.id: one.granted_ms + one.walltime_s * 1000 for one in holders if one.walltime_s}
        yield from self._same(ends, "pool_walltime_ends", pool)
        if not set(self.seen.get("pool_queue", pool)) <= {one.id for one in self.queued}:
            yield f"{pool} queue: {self.seen.get('pool_queue', pool)} are not all queued"

    def _patience(self, pool: str) -> Iterator[str]:
        owner = self.model.holds.get(pool)
        holds = {id_: text for id_, text in self.seen.get("pool_holds", pool).items() if not text.startswith("victims ")}
        if set(holds) != ({owner} if owner else set()) or any(not text.startswith("patience ") for text in holds.values()):
            yield f"{pool} holds: {holds}, should be of {owner}"
        one = self.model.requests.get(owner or "")
        if owner and (not one or one.status != "queued" or pool not in self.model.preferred(one.component)):
            yield f"{pool}: {owner} has a hold and does not wait"
            return
        place = self.model.pools[pool]
        path = place.path(one.component) if one else []
        for name in ("pool", *place.accounts):
            kind, _, own = name.partition(":")
            kept = columns(self.seen.get("pool", pool) if name == "pool" else self.seen.get(kind, pool, own), "patience_held")
            if kept != (dict(one.amounts) if one and name in path else {}):
                yield f"{pool} {name} kept: {kept}, hold of {owner}"

    # holds with victims

    def _clearings(self, pool: str) -> Iterator[str]:
        for hold in self.model.clearings[pool].values():
            one = self.model.requests.get(hold.owner)
            if not one or one.status != "queued" or pool not in self.model.preferred(one.component):
                yield f"{pool}: {hold.owner} has a hold with victims and does not wait"
                return
            if "reviewing" not in self.seen.get("pool", pool) and pool not in self.model.eligible(one):
                yield f"{pool}: {hold.owner} has a hold with victims and is not eligible"
            coming = hold_column(self.seen.get("hold", pool, hold.owner), "expected")
            if coming != self.model.coming(pool, hold):
                yield f"{pool}: to {hold.owner} comes {coming}, should be {self.model.coming(pool, hold)}"
        yield from self._cleared(pool)
        yield from self._leaving(pool)

    def _cleared(self, pool: str) -> Iterator[str]:
        cleared = self.model.cleared(pool)
        for name in ("pool", *self.model.pools[pool].accounts):
            kind, _, own = name.partition(":")
            found = columns(self.seen.get("pool", pool) if name == "pool" else self.seen.get(kind, pool, own), "victim_held")
            expected = {key: units for (account, key), units in cleared.items() if account == name}
            if found != expected:
                yield f"{pool} {name} cleared: {found}, should be {expected}"
        numbers, said = (
            [hold.number for hold in self.model.clearings[pool].values()],
            self.seen.get("pool", pool).get("victim_holds"),
        )
        if (said or "0") != str(len(numbers)) or len(set(numbers)) < len(numbers):
            yield f"{pool} holds: {self.seen.get('pool_holds', pool)}, said to be {said}"

    def _leaving(self, pool: str) -> Iterator[str]:
        told, holders = self.model.leaving[pool], self.model.holders(pool)
        yield from self._same_ids({one.id for one in holders if one.status == "preempting"}, "pool_victims", pool)
        yield from self._same_ids({one.id for one in holders}, "pool_allocation_records", pool)
        for id_, owner in told.items():
            if owner not in (NOBODY, FOR_NONE, *self.model.clearings[pool]):
                yield f"{pool}: {id_} leaves for {owner}, who has no hold"

    def _deadlines(self) -> Iterator[str]:
        """Who leaves for somebody is among those with a deadline; whom nobody needs gone is not."""
        owners = {id_: owner for told in self.model.leaving.values() for id_, owner in told.items() if owner != NOBODY}
        expected = {id_: int(self.seen.get("request", id_).get("deadline_ms") or -1) for id_ in owners}
        yield from self._same(expected, "preemption_deadlines")
        held = {(pool, owner) for pool, holds in self.model.clearings.items() for owner in holds}
        known = {
            (fields["victim_hold_pool"], parts[0])
            for parts, fields in self.seen.of("request")
            if fields.get("victim_hold_pool")
        }
        if known != held:
            yield f"who has a hold with victims: {sorted(known)}, should be {sorted(held)}"
        strange = {parts for parts, _ in self.seen.of("hold")} - held
        if strange:
            yield f"holds of nobody: {strange}"
        for parts, fields in self.seen.of("request"):
            yield from self._directive(parts[0], fields, owners)

    def _directive(self, id_: str, fields: dict[str, str], owners: dict[str, str]) -> Iterator[str]:
        directive, leaving = fields.get("directive", ""), fields["status"] == "preempting"
        if leaving and id_ in owners and directive not in ("checkpoint", "terminate"):
            yield f"{id_} leaves for {owners[id_]} and is told {directive!r}"
        if leaving and directive == "checkpoint" and fields["checkpoint"] == "none":
            yield f"{id_} cannot save its work, and is told to"
        if not leaving and (directive or fields.get("deadline_ms")):
            yield f"{id_} is {fields['status']} and told {directive!r} until {fields.get('deadline_ms')}"

    def _same_ids(self, expected: set[str], kind: str, pool: str) -> Iterator[str]:
        if set(self.seen.get(kind, pool)) != expected:
            yield f"{kind} {pool}: {sorted(self.seen.get(kind, pool))}, should be {sorted(expected)}"

    def _history(self, pool: str) -> Iterator[str]:
        """What was noted of its use: of the pool as much as of its policies, each time; here never too many of them."""
        lines = [line.split(" ") for line in self.seen.get("pool_usage_history", pool)]
        times = [int(line[0]) for line in lines]
        if times != sorted(set(times)) or len(lines) > NOTED or any(at > self.seen.now_ms for at in times):
            yield f"{pool} history: noted at {times}"
        for _, keys, _, used, *policies in lines:
            rows = [[int(units) for units in row.partition(":")[2].split(",")] for row in policies]
            sums = [sum(column) for column in zip([0] * len(keys.split(",")), *rows, strict=True)]
            if [int(units) for units in used.split(",")] != sums:
                yield f"{pool} history: {used} of {keys}, by its policies {sums}"

    # lanes of a pool

    def _parking(self, pool: str) -> Iterator[str]:
        places, parked = self.seen.get("pool_lanes", pool), self.seen.get("pool_parked", pool)
        if set(places) != set(parked):
            yield f"{pool} lanes {sorted(places)}, parked {sorted(parked)}"
            return
        parks: dict[tuple[str, str], dict[str, int]] = {}
        line = {}
        for lane, text in parked.items():
            yield from self._spot(pool, lane, text)
            spot, need, _ = text.split(" ")
            if spot == "line":
                line[lane] = places[lane]
            else:
                parks.setdefault((spot, need), {})[lane] = places[lane]
        yield from self._same(line, "pool_strict_line", pool)
        found = {parts[1:]: value for parts, value in self.seen.of("pool_parking") if parts[0] == pool}
        if found != parks:
            yield f"{pool} parks: {found}, should be {parks}"
        counts: dict[str, str] = {}
        needs: dict[str, dict[str, int]] = {}
        for (spot, need), lanes in parks.items():
            constraint, _, whose = spot.partition("@")
            counts[constraint] = str(int(counts.get(constraint, 0)) + len(lanes))
            needs.setdefault(spot, {})[need] = int(need)
            if whose:
                least = needs.setdefault(constraint, {})
                least[whose] = min(int(need), least.get(whose, int(need)))
        yield from self._same(counts, "pool_parking_counts", pool)
        lacked = {parts[1]: value for parts, value in self.seen.of("pool_parking_needs") if parts[0] == pool}
        if lacked != needs:
            yield f"{pool} needs: {lacked}, should be {needs}"
        if len(set(places.values())) < len(places):
            yield f"{pool}: lanes share a place: {places}"

    def _spot(self, pool: str, lane: str, text: str) -> Iterator[str]:
        """A lane waits since it came, and with fair share apart from those of other policies."""
        spot, _, since = text.split(" ")
        if int(since) > self.seen.now_ms:
            yield f"{pool} {lane} is parked since {since}"
        whose = lane.split("|")[0] if self.model.is_fair(pool) else ""
        if "reviewing" not in self.seen.get("pool", pool) and spot.partition("@")[2] != whose:
            yield f"{pool} {lane} is parked on {spot}"

    def _satisfied(self, pool: str) -> Iterator[str]:
        """With fair share every policy with somebody waiting is noted by what it has; nobody is who has no policy."""
        noted, place = self.seen.get("pool_satisfaction", pool), self.model.pools[pool]
        strange = [component for component in noted if not self.model.is_fair(pool) or not place.policy(component)]
        if strange:
            yield f"{pool} satisfaction: {strange} are not to be there"
        if not self.model.is_fair(pool) or "reviewing" in self.seen.get("pool", pool):
            return
        for component in {lane.split("|")[0] for lane in self.seen.get("pool_parked", pool)}:
            if noted.get(component) != self.model.satisfaction(pool, component):
                should = self.model.satisfaction(pool, component)
                yield f"{pool} satisfaction of {component}: {noted.get(component)}, should be {should}"

    def _shares(self, pool: str) -> Iterator[str]:
        place, expected = self.model.pools[pool], dict[tuple[str, ...], dict[str, int]]()
        listed = self.seen.get("pool_parked", pool)
        for lane in listed:
            component, kind, text = lane.split("|")
            policy = place.policy(component)
            for key, _, units in (pair.partition("=") for pair in text.split(",")):
                if policy and policy.reserved.get(key, 0) > 0:
                    expected.setdefault((component, kind, key), {})[lane] = int(units)
        found = {parts[1:]: value for parts, value in self.seen.of("pool_lane_amounts") if parts[0] == pool}
        if "reviewing" in self.seen.get("pool", pool):
            strange = [lane for lanes in found.values() for lane in lanes if lane not in listed]
            yield from (f"{pool} share: {lane} is not listed" for lane in strange)
        elif found != expected:
            yield f"{pool} shares: {found}, should be {expected}"
        if not self.seen.get("pool_in_share", pool) <= set(listed):
            yield f"{pool} inshare: {self.seen.get('pool_inshare', pool)}"

    def _listed(self, pool: str) -> Iterator[str]:
        queue = self.model.queue(pool)
        heads: dict[str, Request] = {}
        for one in queue:
            heads.setdefault(one.lane, one)
        places = self.seen.get("pool_lanes", pool)
        fair = self.model.is_fair(pool)
        order = sorted(heads, key=lambda lane: (-heads[lane].rank, heads[lane].number)) if fair else list(heads)
        if sorted(places, key=lambda lane: places[lane]) != order:
            yield f"{pool} lanes: {places}, should be in order {order}"
        inshare = {lane for lane, one in heads.items() if not fair and self.model.in_share(pool, one)}
        yield from self._same(inshare, "pool_in_share", pool)

    def _scores(self, pool: str) -> Iterator[str]:
        scores = {}
        for one in self.model.queue(pool):
            policy = self.model.pools[pool].policy(one.component)
            assert policy
            low, weight = CLASS_COUNT - 1 - one.rank, PRIORITY_COUNT - 1 - policy.priority
            discipline = self.model.pools[pool].settings["discipline"]
            ranks = {"reserved": weight * CLASS_COUNT + low, "classes": low * PRIORITY_COUNT + weight, "fair_share": low}
            scores[one.id] = ranks[discipline] * MAX_SUBMISSIONS + one.number
        yield from self._same(scores, "pool_queue", pool)
        assert all(a < b for a, b in pairwise(sorted(scores.values())))
