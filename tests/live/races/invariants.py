"""What is true at every moment, whatever runs: every unit is accounted for, every request is where its state says, every
transition has its event, and every fence is new. Each check says what is wrong, in plain words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from app.domain.states import FINAL_STATES, TRANSITIONS, RequestState
from tests.support.redis_snapshot import LIVE, Snapshot, lane, shape


def faults(seen: Snapshot, *, lowered: bool = False) -> list[str]:
    """All that is wrong. With `lowered`, capacities and limits may have been lowered below what was in use."""
    found = [*_states(seen), *_lanes(seen), *_accounts(seen), *_holds(seen), *_events(seen), *_parking(seen)]
    return found if lowered else found + list(_bounds(seen))


def require_none(found: list[str]) -> None:
    """Nothing is wrong, or all of it is said; also where pytest explains no assertion, as in another process."""
    if found:
        raise AssertionError("\n".join(found))


def _compare(what: str, here: object, wanted: object) -> Iterator[str]:
    if isinstance(here, set) and isinstance(wanted, set) and here != wanted:
        yield f"{what}: too many {sorted(here - wanted)}, missing {sorted(wanted - here)}"
    elif here != wanted:
        yield f"{what}: {here}, but should be {wanted}"


def _states(seen: Snapshot) -> Iterator[str]:
    """Each request is in exactly the structures of its state."""
    finals = [str(state) for state in FINAL_STATES]
    yield from _compare("requests", set(seen.zset("requests")), set(seen.requests))
    yield from _compare("waiting", set(seen.zset("waiting")), set(seen.of_status("queued")))
    yield from _compare("live", set(seen.zset("leases")), set(seen.of_status(*LIVE)))
    yield from _compare("ended", set(seen.zset("ended")), set(seen.of_status(*finals)))
    for pool in seen.pools:
        held = {name: one for name, one in seen.of_status(*LIVE).items() if one["pool"] == pool}
        active = {name: float(one["fence"]) for name, one in held.items()}
        yield from _compare(f"active in {pool}", seen.zset(f"pool:{pool}:allocations"), active)
        promised = {name for name, one in held.items() if "walltime_s" in one}
        yield from _compare(f"ends in {pool}", set(seen.zset(f"pool:{pool}:walltime_ends")), promised)
        strangers = set(seen.zset(f"pool:{pool}:queue")) - set(seen.of_status("queued"))
        yield from _compare(f"in the queue of {pool} but not waiting", strangers, set())


def _lanes(seen: Snapshot) -> Iterator[str]:
    """Each waiter is in its one lane, and each lane with somebody in it is known by its component."""
    wanted, walltimes, known = defaultdict(set), defaultdict(set), defaultdict(set)
    for name, request in seen.of_status("queued").items():
        wanted[f"lane:{lane(request)}"].add(name)
        known[f"component:{request['component']}:lanes"].add(lane(request))
        if "walltime_s" in request:
            walltimes[f"lane:{lane(request)}:walltimes"].add(name)
    here = {key: set(value) for key, value in seen.keys.items() if key.startswith("lane:")}
    yield from _compare("lanes", here, {**wanted, **walltimes})
    listed = {key: value for key, value in seen.keys.items() if key.startswith("component:") and key.endswith(":lanes")}
    yield from _compare("lanes of components", listed, dict(known))


def _accounts(seen: Snapshot) -> Iterator[str]:
    """What an account has in use is the sum over the live allocations below it."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for request in seen.of_status(*LIVE).values():
        if request["pool"]:
            held, path = shape(request), seen.path(request["pool"], request["component"])
            if not path:
                yield f"{request} holds units of a pool in which it has no policy"
            for account in path:
                sums[account, "used"].update(held.ask)
                sums[account, "fixed"].update(held.ask if held.fixed else {})
    for account in accounts(seen):
        for column in ("used", "fixed"):
            yield from _compare(f"{column} of {account}", seen.column(account, column), dict(sums[account, column]))


def accounts(seen: Snapshot) -> list[str]:
    """The keys of all accounts there are."""
    parts = [
        f"pool:{pool}:{kind}:{name}"
        for pool in seen.pools
        for kind in ("group", "policy")
        for name, _ in seen.parts(pool, kind)
    ]
    return [f"pool:{pool}" for pool in seen.pools] + parts


def _holds(seen: Snapshot) -> Iterator[str]:
    """Capacity is kept for the owners of holds, who wait, and for nobody else."""
    kept: dict[str, Counter[str]] = defaultdict(Counter)
    for pool in seen.pools:
        owner = seen.hash(f"pool:{pool}").get("patience")
        yield from _compare(f"holds of {pool}", set(seen.hash(f"pool:{pool}:holds")), {owner} if owner else set())
        if owner and owner not in seen.of_status("queued"):
            yield f"{owner} has a hold in {pool} and does not wait"
        for account in seen.path(pool, seen.requests[owner]["component"]) if owner else []:
            kept[account].update(shape(seen.requests[owner or ""]).ask)
    for account in accounts(seen):
        yield from _compare(f"kept of {account}", seen.column(account, "patience_held"), dict(kept[account]))


def _bounds(seen: Snapshot) -> Iterator[str]:
    """Never one unit too many."""
    for account in accounts(seen):
        limit, used = seen.column(account, "limit"), seen.column(account, "used")
        over = {key: amount for key, amount in used.items() if key in limit and amount > limit[key]}
        yield from _compare(f"over the limit {limit} of {account}", over, {})


def _events(seen: Snapshot) -> Iterator[str]:
    """One event per transition, only lawful ones, and every fence greater than all before."""
    at: dict[str, str] = {}
    told: Counter[str] = Counter()
    newest = 0
    for entry, event in seen.keys.get("events", []):
        name, before, after = event["request"], event["from"], event["to"]
        yield from _compare(f"from of {entry}, {name}", before, at.get(name, ""))
        if before and RequestState(after) not in TRANSITIONS[RequestState(before)]:
            yield f"{name} went from {before} to {after}"
        if after == "allocated" and before == "queued":
            if int(event["fence"]) <= newest:
                yield f"{name} got the fence {event['fence']} after {newest} was given"
            newest = int(event["fence"])
        at[name] = after
        told[name] += 1
    yield from _compare("events", at, {name: request["status"] for name, request in seen.requests.items()})
    yield from _compare("number of events", dict(told), {name: int(one["events"]) for name, one in seen.requests.items()})
    yield from _compare("the last fence", newest, int(seen.hash("meta").get("fence", 0)))


def _parking(seen: Snapshot) -> Iterator[str]:
    """Each lane of a pool is parked in exactly one place."""
    for pool in seen.pools:
        begin = f"pool:{pool}"
        parked = seen.hash(f"{begin}:parked")
        yield from _compare(f"lanes of {pool}", set(seen.zset(f"{begin}:lanes")), set(parked))
        wanted, parks, needs = defaultdict(set), Counter[str](), defaultdict(set)
        for name, text in parked.items():
            constraint, need, _ = text.split(" ")
            place = f"{begin}:strict_line" if constraint == "line" else f"{begin}:parking:{constraint}|{need}"
            wanted[place].add(name)
            if constraint != "line":
                parks[constraint] += 1
                needs[f"{begin}:parking_needs:{constraint}"].add(need)
        here = {
            key: set(value)
            for key, value in seen.keys.items()
            if key == f"{begin}:strict_line" or key.startswith(f"{begin}:parking:")
        }
        yield from _compare(f"where the lanes of {pool} are parked", here, dict(wanted))
        counted = {name: int(count) for name, count in seen.hash(f"{begin}:parking_counts").items()}
        yield from _compare(f"parks of {pool}", counted, dict(parks))
        known = {key: set(value) for key, value in seen.keys.items() if key.startswith(f"{begin}:parking_needs:")}
        yield from _compare(f"needs of {pool}", known, dict(needs))
