"""The value of every key, derived from the plain facts: all data in Redis are explained, or reported as a difference.

`faults` yields the differences at any time, with unfinished work or without. Places and scores are judged by the order that
they make, and only where no work is unfinished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from app.domain.pool_setting_models import AccountSettings, PoolSettings
from app.domain.queue_score import CLASS_COUNT, MAX_SUBMISSIONS, PRIORITY_COUNT
from tests.properties.oracle import BOUNDLESS, FOR_NONE, LIVE, NO_OWNER, Model, Request
from tests.properties.reading import hold_column
from tests.properties.snapshot import Snapshot, columns
from tests.properties.templates import template_faults
from tests.properties.usage import PEAK, usage_faults

FINAL = {"preempted", "released", "expired", "cancelled", "rejected"}
POOL_COLUMNS = {"limit", "used", "fixed", "patience_held", "victim_held", "leaving"}
POOL_COLUMNS |= {"children_reserved", "reserving_accounts"}
COLUMNS = {
    "limit",
    "reserved",
    "used",
    "fixed",
    "patience_held",
    "victim_held",
    "leaving",
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
    "orphaned_victims",
    "last_hold_number",
    "last_creation_number",
    "watched",
    "over_ms",
    "crossing",
    "instances",
    "template_updates",
}
POOL_FIELDS = {*PoolSettings.model_fields, *MARKS}
OWN = {"weight", "creation_number", "status", "below_ms", "over_ms", *AccountSettings.model_fields}
POLICY_FIELDS = {"group", "priority", "profile", "queue_length", "template", "reserved_times", *OWN}
FIELDS = {"group": {"parent", "mode", *OWN}, "policy": POLICY_FIELDS}


class Structures:
    """The keys of one snapshot beside the model read from it."""

    def __init__(self, snapshot: Snapshot, model: Model) -> None:
        self.snapshot, self.model = snapshot, model
        self.queued = [request for request in model.requests.values() if request.status == "queued"]

    def faults(self) -> Iterator[str]:
        """Yield every difference."""
        yield from self._states()
        yield from self._lanes()
        yield from self._components()
        yield from self._counted()
        yield from template_faults(self.snapshot, self.model)
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
            yield from usage_faults(self.snapshot, pool)
            if "reviewing" not in self.snapshot.get("pool", pool):
                yield from self._listed(pool)
                if not any(self.snapshot.get(work, pool) for work in ("pool_unfinished", "pool_queue_syncs")):
                    yield from self._scores(pool)

    def _same(self, expected: Any, kind: str, *parts: str) -> Iterator[str]:
        fields = self.snapshot.get(kind, *parts)
        if fields != expected:
            yield f"{kind} {' '.join(parts)}: {fields}, should be {expected}"

    # requests

    def _states(self) -> Iterator[str]:
        by_status: dict[str, set[str]] = {}
        for request in self.model.requests.values():
            by_status.setdefault(request.status, set()).add(request.id)
        sets = {"waiting": {"queued"}, "leases": LIVE, "ended": FINAL, "rejected": {"rejected"}}
        for name, statuses in sets.items():
            expected = set().union(*(by_status.get(status, set()) for status in statuses))
            if set(self.snapshot.get(name)) != expected:
                yield f"{name}: {sorted(self.snapshot.get(name))}, should be {sorted(expected)}"
        if set(by_status) - {"queued"} - LIVE - FINAL:
            yield f"states that do not exist: {sorted(by_status)}"
        yield from self._same({request.id: request.number for request in self.model.requests.values()}, "requests")
        for (id_,), fields in self.snapshot.of("request"):
            yield from self._times(id_, fields)

    def _times(self, id_: str, fields: dict[str, str]) -> Iterator[str]:
        status, now = fields["status"], self.snapshot.now_ms
        if status in FINAL and self.snapshot.get("ended").get(id_) != int(fields["ended_ms"]):
            yield f"{id_} ended at {fields['ended_ms']}, by `ended` at {self.snapshot.get('ended').get(id_)}"
        for name, of, since in (("waiting", "queue_ttl_s", "submitted_ms"), ("leases", "lease_s", "granted_ms")):
            if id_ in self.snapshot.get(name):
                due_ms, length = self.snapshot.get(name)[id_], fields.get(of)
                first = int(fields[since]) + int(length) * 1000 if length else BOUNDLESS
                last = now + int(length) * 1000 if length else BOUNDLESS
                if not first <= due_ms <= last:
                    yield f"{name} {id_}: {due_ms} is not from {first} to {last}"

    def _lanes(self) -> Iterator[str]:
        lanes: dict[str, list[Request]] = {}
        for request in self.queued:
            lanes.setdefault(request.lane, []).append(request)
        lane_names = {parts[0] for parts, _ in self.snapshot.of("lane")}
        if lane_names != set(lanes):
            yield f"lanes: {sorted(lane_names)}, should be {sorted(lanes)}"
        for lane, members in lanes.items():
            inner = {request.id: (CLASS_COUNT - 1 - request.rank) * MAX_SUBMISSIONS + request.number for request in members}
            yield from self._same(inner, "lane", lane)
            yield from self._same(
                {request.id: request.walltime_s for request in members if request.walltime_s}, "lane_walltimes", lane
            )
        for component in {request.component for request in self.model.requests.values()}:
            own = {lane: 0 for lane in lanes if lane.startswith(component + "|")}
            yield from self._same(own, "component_lanes", component)
        yield from self._same(set(lanes), "lanes")
        if not set(self.snapshot.get("orphaned_lanes")) <= set(lanes):
            yield f"orphans that are no lanes: {set(self.snapshot.get('orphaned_lanes')) - set(lanes)}"

    def _components(self) -> Iterator[str]:
        yield from (
            self._same(set(self.model.pools), "unfinished")
            if not self.snapshot.get("unfinished") <= set(self.model.pools)
            else ()
        )
        if set(self.snapshot.get("pools")) != set(self.model.pools):
            yield f"pools: {self.snapshot.get('pools')}, should be {sorted(self.model.pools)}"
        policies: dict[str, dict[str, int]] = {}
        for name, pool in self.model.pools.items():
            for account in pool.accounts.values():
                if account.name.startswith("policy:"):
                    policies.setdefault(account.name[7:], {})[name] = -account.priority
            for kind in ("policy", "group"):
                names = {account[len(kind) + 1 :] for account in pool.accounts if account.startswith(kind + ":")}
                yield from self._same(names, "pool_policies" if kind == "policy" else "pool_groups", name)
        pools_by_component = {parts[0]: value for parts, value in self.snapshot.of("component_pools")}
        if pools_by_component != policies:
            yield f"component: {pools_by_component}, should be {policies}"

    def _counted(self) -> Iterator[str]:
        """Yield wrong counters of limits: policies, bytes of bodies."""
        meta = self.snapshot.get("meta")
        accounts = [account for pool in self.model.pools.values() for account in pool.accounts.values()]
        policies = sum(account.name.startswith("policy:") and not account.template for account in accounts)
        if int(meta.get("policies", 0)) != policies:
            yield f"{meta.get('policies')} policies, should be {policies}"
        stored = int(meta.get("saved_bytes", 0)) - int(meta.get("deleted_bytes", 0))
        size = sum(int(fields["bytes"]) for kind in ("request", "task") for _, fields in self.snapshot.of(kind))
        if stored != size:
            yield f"{stored} bytes of bodies, should be {size}"

    def _unexplained(self) -> Iterator[str]:
        for key in self.snapshot.data:
            if (key[0].startswith("pool_") or key[0] in FIELDS or key[0] == "hold") and key[1] not in self.model.pools:
                yield f"{key} of a pool that is not there"
            if key[0] in ("component_lanes", "lane_walltimes") and not self.snapshot.data[key]:
                yield f"{key} is empty"

    def _runs(self, pool: str) -> Iterator[str]:
        """Yield run times without a policy, or whose steps do not add up to their count."""
        for (place, component), counts in self.snapshot.of("pool_run_times"):
            steps = sum(int(count) for step, count in counts.items() if step != "all")
            has_policy = f"policy:{component}" in self.model.pools[pool].accounts if place == pool else True
            if not has_policy or steps != int(counts["all"]):
                yield f"run times of {component} in {place}: {counts}"

    # accounts

    def _accounts(self, pool: str) -> Iterator[str]:
        place = self.model.pools[pool]
        raw = {"pool": self.snapshot.get("pool", pool)}
        for name in place.accounts:
            kind, _, own = name.partition(":")
            raw[name] = self.snapshot.get(kind, pool, own)
        for column, sums in (("used", self.model.used(pool)), ("fixed", self.model.used(pool, fixed=True))):
            for name, fields in raw.items():
                if columns(fields, column) != +sums[name]:
                    yield f"{pool} {name} {column}: {columns(fields, column)}, should be {dict(sums[name])}"
        for name, fields in raw.items():
            promised = Counter[str]()
            for account in place.accounts.values():
                promised.update(account.promised() if (account.parent or "pool") == name else {})
            if columns(fields, "children_reserved") != +promised:
                yield f"{pool} {name} promised: {columns(fields, 'children_reserved')}, should be {promised}"
            known_fields = POOL_FIELDS if name == "pool" else FIELDS[name.partition(":")[0]]
            of = POOL_COLUMNS if name == "pool" else COLUMNS
            named = [field for field in fields if not field.startswith(PEAK)]
            strange = [field for field in named if field.partition(":")[0] not in (of if ":" in field else known_fields)]
            if strange:
                yield f"{pool} {name} has {strange}"
        keys = [key for account in place.accounts.values() for key, units in account.promised().items() if units]
        if columns(raw["pool"], "reserving_accounts") != {key: keys.count(key) for key in keys}:
            yield f"{pool} reserving: {columns(raw['pool'], 'reserving_accounts')}, should be {keys}"

    def _members(self, pool: str) -> Iterator[str]:
        holders = self.model.holders(pool)
        yield from self._same({request.id: request.fence for request in holders}, "pool_allocations", pool)
        ends = {request.id: request.granted_ms + request.walltime_s * 1000 for request in holders if request.walltime_s}
        yield from self._same(ends, "pool_walltime_ends", pool)
        if not set(self.snapshot.get("pool_queue", pool)) <= {request.id for request in self.queued}:
            yield f"{pool} queue: {self.snapshot.get('pool_queue', pool)} are not all queued"

    def _patience(self, pool: str) -> Iterator[str]:
        owner = self.model.holds.get(pool)
        holds = {id_: text for id_, text in self.snapshot.get("pool_holds", pool).items() if not text.startswith("victims ")}
        if set(holds) != ({owner} if owner else set()) or any(not text.startswith("patience ") for text in holds.values()):
            yield f"{pool} holds: {holds}, should be of {owner}"
        waiter = self.model.requests.get(owner or "")
        if owner and (not waiter or waiter.status != "queued" or pool not in self.model.preferred(waiter.component)):
            yield f"{pool}: {owner} has a hold and does not wait"
            return
        place = self.model.pools[pool]
        path = place.path(waiter.component) if waiter else []
        for name in ("pool", *place.accounts):
            kind, _, own = name.partition(":")
            held_units = columns(
                self.snapshot.get("pool", pool) if name == "pool" else self.snapshot.get(kind, pool, own), "patience_held"
            )
            if held_units != (dict(waiter.amounts) if waiter and name in path else {}):
                yield f"{pool} {name} kept: {held_units}, hold of {owner}"

    # victim holds

    def _clearings(self, pool: str) -> Iterator[str]:
        for hold in self.model.clearings[pool].values():
            waiter = self.model.requests.get(hold.owner)
            if not waiter or waiter.status != "queued" or pool not in self.model.preferred(waiter.component):
                yield f"{pool}: {hold.owner} has a victim hold and does not wait"
                return
            if "reviewing" not in self.snapshot.get("pool", pool) and pool not in self.model.eligible(waiter):
                yield f"{pool}: {hold.owner} has a victim hold and is not eligible"
            coming = hold_column(self.snapshot.get("hold", pool, hold.owner), "expected")
            if coming != self.model.coming(pool, hold):
                yield f"{pool}: to {hold.owner} comes {coming}, should be {self.model.coming(pool, hold)}"
        yield from self._cleared(pool)
        yield from self._leaving(pool)

    def _cleared(self, pool: str) -> Iterator[str]:
        cleared = self.model.cleared(pool)
        for name in ("pool", *self.model.pools[pool].accounts):
            kind, _, own = name.partition(":")
            held_units = columns(
                self.snapshot.get("pool", pool) if name == "pool" else self.snapshot.get(kind, pool, own), "victim_held"
            )
            expected = {key: units for (account, key), units in cleared.items() if account == name}
            if held_units != expected:
                yield f"{pool} {name} cleared: {held_units}, should be {expected}"
        numbers, hold_count = (
            [hold.number for hold in self.model.clearings[pool].values()],
            self.snapshot.get("pool", pool).get("victim_holds"),
        )
        if (hold_count or "0") != str(len(numbers)) or len(set(numbers)) < len(numbers):
            yield f"{pool} holds: {self.snapshot.get('pool_holds', pool)}, said to be {hold_count}"

    def _leaving(self, pool: str) -> Iterator[str]:
        owners_by_victim, holders = self.model.leaving[pool], self.model.holders(pool)
        yield from self._same_ids(
            {allocation.id for allocation in holders if allocation.status == "preempting"}, "pool_victims", pool
        )
        yield from self._same_ids({allocation.id for allocation in holders}, "pool_allocation_records", pool)
        for id_, owner in owners_by_victim.items():
            if owner not in (NO_OWNER, FOR_NONE, *self.model.clearings[pool]):
                yield f"{pool}: {id_} leaves for {owner}, which has no hold"
        yield from self._listed_victims(pool)

    def _listed_victims(self, pool: str) -> Iterator[str]:
        """Yield holds that do not list their victims, and wrong counts of orphaned victims and freed units."""
        owners_by_victim = self.model.leaving[pool]
        for owner in self.model.clearings[pool]:
            yield from self._same({id_ for id_, of in owners_by_victim.items() if of == owner}, "hold_victims", pool, owner)
        orphans = [*owners_by_victim.values()].count(NO_OWNER)
        if int(self.snapshot.get("pool", pool).get("orphaned_victims", 0)) != orphans:
            yield f"{pool} orphans: {self.snapshot.get('pool', pool)}, should be {orphans}"
        sums: dict[str, Counter[str]] = {name: Counter() for name in ("pool", *self.model.pools[pool].accounts)}
        for id_ in owners_by_victim:
            for account in self.model.pools[pool].path(self.model.requests[id_].component):
                sums[account].update(self.model.requests[id_].amounts)
        for name, units in sums.items():
            kind, _, own = name.partition(":")
            fields = self.snapshot.get("pool", pool) if name == "pool" else self.snapshot.get(kind, pool, own)
            if columns(fields, "leaving") != +units:
                yield f"{pool} {name} leaving: {columns(fields, 'leaving')}, should be {dict(units)}"

    def _deadlines(self) -> Iterator[str]:
        """Yield victims without a deadline, and needless victims with one."""
        owners = {
            id_: owner
            for owners_by_victim in self.model.leaving.values()
            for id_, owner in owners_by_victim.items()
            if owner != NO_OWNER
        }
        expected = {id_: int(self.snapshot.get("request", id_).get("deadline_ms") or -1) for id_ in owners}
        yield from self._same(expected, "preemption_deadlines")
        owners_of_holds = {(pool, owner) for pool, holds in self.model.clearings.items() for owner in holds}
        noted_holds = {
            (fields["victim_hold_pool"], parts[0])
            for parts, fields in self.snapshot.of("request")
            if fields.get("victim_hold_pool")
        }
        if noted_holds != owners_of_holds:
            yield f"owners of victim holds: {sorted(noted_holds)}, should be {sorted(owners_of_holds)}"
        strange = {parts for parts, _ in self.snapshot.of("hold")} - owners_of_holds
        if strange:
            yield f"holds without an owner: {strange}"
        for parts, fields in self.snapshot.of("request"):
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
        if set(self.snapshot.get(kind, pool)) != expected:
            yield f"{kind} {pool}: {sorted(self.snapshot.get(kind, pool))}, should be {sorted(expected)}"

    # lanes of a pool

    def _parking(self, pool: str) -> Iterator[str]:
        places, parked = self.snapshot.get("pool_lanes", pool), self.snapshot.get("pool_parked", pool)
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
        parking_records = {parts[1:]: value for parts, value in self.snapshot.of("pool_parking") if parts[0] == pool}
        backfill = {
            (f"backfill|{spot}", need): walltimes
            for (spot, need), lanes in parks.items()
            if spot.startswith("patience_held|")
            and (walltimes := {lane: least for lane in lanes if (least := self._least_walltime(lane)) is not None})
        }
        if parking_records != parks | backfill:
            yield f"{pool} parks: {parking_records}, should be {parks | backfill}"
        counts: dict[str, str] = {}
        needs: dict[str, dict[str, int]] = {}
        for (spot, need), lanes in parks.items():
            constraint, _, whose = spot.partition("@")
            counts[constraint] = str(int(counts.get(constraint, 0)) + len(lanes))
            if whose:
                of_policies = needs.setdefault(constraint, {})
                of_policies[whose] = min(int(need), of_policies.get(whose, int(need)))
        yield from self._same(counts, "pool_parking_counts", pool)
        lacked = {parts[1]: value for parts, value in self.snapshot.of("pool_parking_needs") if parts[0] == pool}
        if lacked != needs:
            yield f"{pool} needs: {lacked}, should be {needs}"
        trees = {parts[1:]: value for parts, value in self.snapshot.of("pool_parking_tree") if parts[0] == pool}
        if trees != (expected := _trees(parks | backfill)):
            yield f"{pool} trees: {trees}, should be {expected}"
        blocked = {lane: int(text.split(" ")[2]) for lane, text in parked.items() if _is_capacity(text.split(" ")[0])}
        yield from self._same(blocked, "pool_blocked_since", pool)
        if len(set(places.values())) < len(places):
            yield f"{pool}: lanes share a place: {places}"

    def _least_walltime(self, lane: str) -> int | None:
        return min(self.snapshot.get("lane_walltimes", lane).values(), default=None)

    def _spot(self, pool: str, lane: str, text: str) -> Iterator[str]:
        """Yield lanes with a wrong time of parking, or parked with those of another policy under fair share."""
        spot, _, since = text.split(" ")
        if int(since) > self.snapshot.now_ms:
            yield f"{pool} {lane} is parked since {since}"
        whose = lane.split("|")[0] if self.model.is_fair(pool) else ""
        if "reviewing" not in self.snapshot.get("pool", pool) and spot.partition("@")[2] != whose:
            yield f"{pool} {lane} is parked on {spot}"

    def _satisfied(self, pool: str) -> Iterator[str]:
        """Yield policies with waiters whose satisfaction is missing or wrong, under fair share, and entries without a
        policy."""
        noted, place = self.snapshot.get("pool_satisfaction", pool), self.model.pools[pool]
        strange = [component for component in noted if not self.model.is_fair(pool) or not place.policy(component)]
        if strange:
            yield f"{pool} satisfaction: {strange} are not to be there"
        if not self.model.is_fair(pool) or "reviewing" in self.snapshot.get("pool", pool):
            return
        for component in {lane.split("|")[0] for lane in self.snapshot.get("pool_parked", pool)}:
            if noted.get(component) != self.model.satisfaction(pool, component):
                should = self.model.satisfaction(pool, component)
                yield f"{pool} satisfaction of {component}: {noted.get(component)}, should be {should}"

    def _shares(self, pool: str) -> Iterator[str]:
        place, expected = self.model.pools[pool], dict[tuple[str, ...], dict[str, int]]()
        listed = self.snapshot.get("pool_parked", pool)
        for lane in listed:
            component, kind, text, *_ = lane.split("|")
            policy = place.policy(component)
            for key, _, units in (pair.partition("=") for pair in text.split(",")):
                if policy and policy.reserved.get(key, 0) > 0:
                    used = self.model.used(pool, fixed=kind == "f")[policy.name][key]
                    side = "fits" if int(units) <= policy.reserved[key] - used else "exceeds"
                    expected.setdefault((side, component, kind, key), {})[lane] = int(units)
        amounts = {parts[1:]: value for parts, value in self.snapshot.of("pool_lane_amounts") if parts[0] == pool}
        if "reviewing" in self.snapshot.get("pool", pool):
            strange = [lane for lanes in amounts.values() for lane in lanes if lane not in listed]
            yield from (f"{pool} share: {lane} is not listed" for lane in strange)
        elif "crossing" not in self.snapshot.get("pool", pool) and amounts != expected:
            yield f"{pool} shares: {amounts}, should be {expected}"
        if not self.snapshot.get("pool_in_share", pool) <= set(listed):
            yield f"{pool} inshare: {self.snapshot.get('pool_in_share', pool)}"

    def _listed(self, pool: str) -> Iterator[str]:
        if "crossing" in self.snapshot.get("pool", pool):  # until all lanes have crossed, nothing is granted
            return
        queue = self.model.queue(pool)
        heads: dict[str, Request] = {}
        for waiter in queue:
            heads.setdefault(waiter.lane, waiter)
        places = self.snapshot.get("pool_lanes", pool)
        fair = self.model.is_fair(pool)
        order = sorted(heads, key=lambda lane: (-heads[lane].rank, heads[lane].number)) if fair else list(heads)
        if sorted(places, key=lambda lane: places[lane]) != order:
            yield f"{pool} lanes: {places}, should be in order {order}"
        inshare = {lane for lane, waiter in heads.items() if not fair and self.model.in_share(pool, waiter)}
        yield from self._same(inshare, "pool_in_share", pool)

    def _scores(self, pool: str) -> Iterator[str]:
        scores, of_policies = {}, dict[str, dict[str, int]]()
        for waiter in self.model.queue(pool):
            policy = self.model.pools[pool].policy(waiter.component)
            assert policy
            low, weight = CLASS_COUNT - 1 - waiter.rank, PRIORITY_COUNT - 1 - policy.priority
            discipline = self.model.pools[pool].settings["discipline"]
            of_policies.setdefault(waiter.component, {})[waiter.id] = low * MAX_SUBMISSIONS + waiter.number
            ranks = {"reserved": weight * CLASS_COUNT + low, "classes": low * PRIORITY_COUNT + weight, "fair_share": low}
            scores[waiter.id] = ranks[discipline] * MAX_SUBMISSIONS + waiter.number
        yield from self._same(scores, "pool_queue", pool)
        stored = {parts[1]: value for parts, value in self.snapshot.of("pool_policy_queue") if parts[0] == pool}
        expected = of_policies if self.model.is_fair(pool) else {}
        if stored != expected:
            yield f"{pool} queues of policies: {stored}, should be {expected}"
        for parts, policy in self.snapshot.of("policy"):
            length = len(of_policies.get(parts[1], ()))
            if parts[0] == pool and int(policy.get("queue_length", 0)) != length:
                yield f"{pool} waiters of {parts[1]}: {policy.get('queue_length')}, should be {length}"
        assert all(a < b for a, b in pairwise(sorted(scores.values())))


def _is_capacity(slot: str) -> bool:
    constraint = slot.partition("@")[0]
    return constraint in ("line", "new|pool|-") or constraint.startswith(("limit|pool|", "patience_held|", "victim_held|pool|"))


def _trees(parks: Mapping[tuple[str, str], Mapping[str, int]]) -> dict[tuple[str, str], dict[str, int]]:
    """Return the nodes of the trees over the needs of each slot."""
    trees: dict[tuple[str, str], dict[str, int]] = {}
    for (slot, need), lanes in parks.items():
        digits, least = f"{int(need):x}", min(lanes.values())
        nodes = [(".", str(len(digits))), *((f"{len(digits)}.{digits[:depth]}", digits[depth]) for depth in range(len(digits)))]
        for node, member in nodes:
            members = trees.setdefault((slot, node), {})
            members[member] = min(least, members.get(member, least))
    return trees
