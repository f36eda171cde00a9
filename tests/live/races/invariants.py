"""Invariants that hold at every moment: every unit is accounted for, every request is where its status says, every
transition has its event, and every fence is new. Each check describes its faults in plain words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from app.domain.ledger_limits import FENCE_JUMP
from app.domain.states import FINAL_STATES, TRANSITIONS, RequestState
from tests.support.redis_snapshot import LIVE, Snapshot, lane, shape

REQUEST_FIELDS: Final = (
    "status",
    "pool",
    "fence",
    "component",
    "preemptible",
    "resources",
    "class",
    "seq",
    "walltime_s",
    "events",
)
"""The fields of a request that the checks need; to read its timeline too takes several times as long."""


class EventLog:
    """The events read so far, and the rules of events: one per transition, only lawful ones, and every fence is new."""

    def __init__(self) -> None:
        self.after = "-"
        """Start of the next read of the stream, as XRANGE takes it."""
        self._states: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._newest_fence = 0

    def faults(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield what is wrong with the new events, and where they disagree with the requests."""
        for entry, event in snapshot.keys.get("events", []):
            self.after = f"({entry}"
            yield from self._event_faults(entry, event)
        requests = snapshot.requests
        yield from _compare("events", self._states, {name: request["status"] for name, request in requests.items()})
        event_counts = {name: int(request["events"]) for name, request in requests.items()}
        yield from _compare("number of events", dict(self._counts), event_counts)
        last_fence = int(snapshot.hash("meta").get("fence", 0))
        if last_fence < self._newest_fence + FENCE_JUMP:  # else another master has been adopted since the last grant
            yield from _compare("the last fence", self._newest_fence, last_fence)

    def _event_faults(self, entry: str, event: Mapping[str, str]) -> Iterator[str]:
        name, before, after = event["request"], event["from"], event["to"]
        yield from _compare(f"from of {entry}, {name}", before, self._states.get(name, ""))
        if before and RequestState(after) not in TRANSITIONS[RequestState(before)]:
            yield f"{name} went from {before} to {after}"
        if after == "allocated" and before == "queued":
            if int(event["fence"]) <= self._newest_fence:
                yield f"{name} got the fence {event['fence']} after {self._newest_fence} was given"
            self._newest_fence = int(event["fence"])
        self._states[name] = after
        self._counts[name] += 1


def faults(snapshot: Snapshot, *, lowered: bool = False, log: EventLog | None = None) -> list[str]:
    """Return all that is wrong. With `lowered`, capacities and limits may have been lowered below what was in use.

    `log` has read the events before those of the snapshot; without it, the snapshot has all events.
    """
    faults = [
        *_states(snapshot),
        *_lanes(snapshot),
        *_accounts(snapshot),
        *_holds(snapshot),
        *(log or EventLog()).faults(snapshot),
        *_parking(snapshot),
    ]
    return faults if lowered else faults + list(_bounds(snapshot))


def require_none(faults: list[str]) -> None:
    """Raise an error that lists all faults, also where pytest explains no assertion, as in another process."""
    if faults:
        raise AssertionError("\n".join(faults))


def _compare(subject: str, actual: object, expected: object) -> Iterator[str]:
    if isinstance(actual, set) and isinstance(expected, set) and actual != expected:
        yield f"{subject}: too many {sorted(actual - expected)}, missing {sorted(expected - actual)}"
    elif actual != expected:
        yield f"{subject}: {actual}, but should be {expected}"


def _states(snapshot: Snapshot) -> Iterator[str]:
    """Yield requests that are not in exactly the structures of their status."""
    finals = [str(state) for state in FINAL_STATES]
    yield from _compare("requests", set(snapshot.zset("requests")), set(snapshot.requests))
    yield from _compare("waiting", set(snapshot.zset("waiting")), set(snapshot.of_status("queued")))
    yield from _compare("live", set(snapshot.zset("leases")), set(snapshot.of_status(*LIVE)))
    yield from _compare("ended", set(snapshot.zset("ended")), set(snapshot.of_status(*finals)))
    for pool in snapshot.pools:
        allocations = {name: request for name, request in snapshot.of_status(*LIVE).items() if request["pool"] == pool}
        active = {name: float(request["fence"]) for name, request in allocations.items()}
        yield from _compare(f"active in {pool}", snapshot.zset(f"pool:{pool}:allocations"), active)
        promised = {name for name, request in allocations.items() if "walltime_s" in request}
        yield from _compare(f"ends in {pool}", set(snapshot.zset(f"pool:{pool}:walltime_ends")), promised)
        strangers = set(snapshot.zset(f"pool:{pool}:queue")) - set(snapshot.of_status("queued"))
        yield from _compare(f"in the queue of {pool} but not waiting", strangers, set())


def _lanes(snapshot: Snapshot) -> Iterator[str]:
    """Yield waiters that are not in exactly one lane, and lanes that their component does not know."""
    expected, walltimes, lanes_by_component = defaultdict(set), defaultdict(set), defaultdict(set)
    for name, request in snapshot.of_status("queued").items():
        expected[f"lane:{lane(request)}"].add(name)
        lanes_by_component[f"component:{request['component']}:lanes"].add(lane(request))
        if "walltime_s" in request:
            walltimes[f"lane:{lane(request)}:walltimes"].add(name)
    actual = {key: set(value) for key, value in snapshot.keys.items() if key.startswith("lane:")}
    yield from _compare("lanes", actual, {**expected, **walltimes})
    listed = {
        key: set(value) for key, value in snapshot.keys.items() if key.startswith("component:") and key.endswith(":lanes")
    }
    yield from _compare("lanes of components", listed, dict(lanes_by_component))


def _accounts(snapshot: Snapshot) -> Iterator[str]:
    """Yield accounts whose usage is not the sum over the live allocations below them."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for request in snapshot.of_status(*LIVE).values():
        if request["pool"]:
            request_shape, path = shape(request), snapshot.path(request["pool"], request["component"])
            if not path:
                yield f"{request} holds units of a pool in which it has no policy"
            for account in path:
                sums[account, "used"].update(request_shape.ask)
                sums[account, "fixed"].update(request_shape.ask if request_shape.fixed else {})
    for account in accounts(snapshot):
        for column in ("used", "fixed"):
            yield from _compare(f"{column} of {account}", snapshot.column(account, column), dict(sums[account, column]))


def accounts(snapshot: Snapshot) -> list[str]:
    """Return the keys of all accounts."""
    parts = [
        f"pool:{pool}:{kind}:{name}"
        for pool in snapshot.pools
        for kind in ("group", "policy")
        for name, _ in snapshot.parts(pool, kind)
    ]
    return [f"pool:{pool}" for pool in snapshot.pools] + parts


def _holds(snapshot: Snapshot) -> Iterator[str]:
    """Yield held capacity that does not belong to a waiting owner of a hold."""
    held_units: dict[str, Counter[str]] = defaultdict(Counter)
    for pool in snapshot.pools:
        owner = snapshot.hash(f"pool:{pool}").get("patience")
        yield from _compare(f"holds of {pool}", set(snapshot.hash(f"pool:{pool}:holds")), {owner} if owner else set())
        if owner and owner not in snapshot.of_status("queued"):
            yield f"{owner} has a hold in {pool} and does not wait"
        for account in snapshot.path(pool, snapshot.requests[owner]["component"]) if owner else []:
            held_units[account].update(shape(snapshot.requests[owner or ""]).ask)
    for account in accounts(snapshot):
        yield from _compare(f"kept of {account}", snapshot.column(account, "patience_held"), dict(held_units[account]))


def _bounds(snapshot: Snapshot) -> Iterator[str]:
    """Yield accounts with a unit too many."""
    for account in accounts(snapshot):
        limit, used = snapshot.column(account, "limit"), snapshot.column(account, "used")
        over = {key: amount for key, amount in used.items() if key in limit and amount > limit[key]}
        yield from _compare(f"over the limit {limit} of {account}", over, {})


def _parking(snapshot: Snapshot) -> Iterator[str]:
    """Yield lanes that are not parked in exactly one place; the slots of backfill repeat some."""
    for pool in snapshot.pools:
        begin = f"pool:{pool}"
        parked = snapshot.hash(f"{begin}:parked")
        yield from _compare(f"lanes of {pool}", set(snapshot.zset(f"{begin}:lanes")), set(parked))
        expected, parks = defaultdict(set), Counter[str]()
        for name, text in parked.items():
            constraint, need, _ = text.split(" ")
            place = f"{begin}:strict_line" if constraint == "line" else f"{begin}:parking:{constraint}|{need}"
            expected[place].add(name)
            if constraint != "line":
                parks[constraint] += 1
        actual = {
            key: set(value)
            for key, value in snapshot.keys.items()
            if key == f"{begin}:strict_line"
            or (key.startswith(f"{begin}:parking:") and not key.startswith(f"{begin}:parking:backfill|"))
        }
        yield from _compare(f"where the lanes of {pool} are parked", actual, dict(expected))
        counted = {name: int(count) for name, count in snapshot.hash(f"{begin}:parking_counts").items()}
        yield from _compare(f"parks of {pool}", counted, dict(parks))
