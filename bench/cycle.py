"""The cycle submit → grant → release through the ledger, with one client, against the floor: single calls and pipelined."""

from __future__ import annotations

from itertools import count

from redis import Redis

from app.domain.ids import request_id
from app.domain.models import Request
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.store.ledger import Ledger
from bench.floor import bare, issued
from bench.timing import side_by_side_us

WORKSPACE = "bench"
BATCH = 100


def run(client: Redis, calls: int) -> None:
    """Print the row of the cycle."""
    client.flushall()
    ledger = Ledger(client)
    ledger.create_pool(WORKSPACE, PoolSpec(name="p", capacity={"gpu": 1000}))
    for number in range(100):
        ledger.set_policy(WORKSPACE, "p", f"orchestrator/t{number}", PolicySpec(priority=1, reserved={"gpu": 5}))
    ask = RequestSpec(component="t0", resources={"gpu": 1})

    def cycle() -> None:
        request = ledger.submit(WORKSPACE, ask)
        ledger.release(WORKSPACE, request.id, request.fence or 0)

    def pipelined() -> None:
        granted = ledger.submit_all(WORKSPACE, [(request_id(), ask, None) for _ in range(BATCH)])
        ledger.release_all(WORKSPACE, [(request.id, request.fence or 0) for request in granted if isinstance(request, Request)])

    cycle()
    requests: list[Request] = []
    one_submit = issued(client, lambda: requests.append(ledger.submit(WORKSPACE, ask)))
    fence = str(requests[0].fence)
    one_release = issued(client, lambda: ledger.release(WORKSPACE, requests[0].id, requests[0].fence or 0))
    submit = bare(client, one_submit, {requests[0].id: 1})
    release = bare(client, one_release, {requests[0].id: 1, fence: 2})
    numbers = count()

    def floor() -> None:
        identifier = f"{next(numbers):020}"
        submit.run(client, identifier)
        release.run(client, identifier, fence)

    def floor_pipelined() -> None:
        identifiers = [f"{next(numbers):020}" for _ in range(BATCH)]
        for script, more in ((submit, []), (release, [fence])):
            with client.pipeline(transaction=False) as pipe:
                for identifier in identifiers:
                    pipe.evalsha(script.sha, 1, "pk:{bench}:", identifier, *more)
                pipe.execute()

    ours, bottom = side_by_side_us(cycle, floor, calls // 2)
    piped, piped_bottom = (us / BATCH for us in side_by_side_us(pipelined, floor_pipelined, calls // BATCH))
    print(f"  commands in a cycle: {submit.commands} in submit, {release.commands} in release")
    for how, us, least in (("one at a time", ours, bottom), ("pipelined", piped, piped_bottom)):
        print(f"  {how:<13}: {us:7.1f} us; floor {least:7.1f} us; {least / us:.2f} x the rate of the floor (reach 0.5)")
