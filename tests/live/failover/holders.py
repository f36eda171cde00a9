"""A process of clients that submit, hold units under heartbeats and release them, and record which units they held and when.

A holder obeys: it holds from the answer that tells of the grant until it releases, until it is told that its fence holds
nothing, or until its lease is over without an answer to a heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from threading import Lock, Thread
from typing import Any, Final, Literal, NamedTuple, TypeVar

from app.domain.errors import NotFound, Refusal, StaleFence, StoreUnavailable
from app.domain.ids import request_id
from app.domain.models import Request
from app.domain.specs import RequestSpec
from app.domain.states import RequestState
from app.store.connection import connect
from app.store.ledger import Ledger
from app.store.master_watch import watch_master

WORKSPACE: Final = "failover"
THREADS: Final = 4
LEASE_S: Final = 1
HEARTBEAT_S: Final = 0.05
RETRY_S: Final = 0.05

Result = TypeVar("Result")


class Holding(NamedTuple):
    """Units that a client held, from when to when (s, the clock of the machine), and how that ended.

    `released`: the service took them back. `lost`: it said that they are not held. `unanswered`: it said neither.
    """

    request: str
    fence: int
    units: int
    from_s: float
    to_s: float
    end: Literal["released", "lost", "unanswered"]


def run_holders(url: str, seed: int, replicas: int, stop: Any, grants: Any, started: Any) -> tuple[list[Holding], list[str]]:
    """Hold and release until `stop`; return what was held, and the reasons for which Redis was unavailable."""
    client = connect(url, timeout_s=2, replicas=replicas)
    watch = watch_master(client)
    with started.get_lock():
        started.value += 1
    crew = _Crew(Ledger(client), stop, grants)
    threads = [Thread(target=crew.run, args=(Random(seed * 100 + number),)) for number in range(THREADS)]
    for thread in [*threads, Thread(target=crew.clean_up, daemon=True)]:
        thread.start()
    for thread in threads:
        thread.join()
    if watch:
        watch.stop()
    if crew.failures:
        raise crew.failures[0]
    return crew.holdings, crew.outages


class _Crew:
    def __init__(self, ledger: Ledger, stop: Any, grants: Any) -> None:
        self.ledger, self.stop, self.grants = ledger, stop, grants
        self.holdings: list[Holding] = []
        self.outages: list[str] = []
        self.failures: list[Exception] = []
        self.lock = Lock()

    def run(self, random: Random) -> None:
        """Hold one request after the other."""
        try:
            while not self.stop.value:
                self._hold_once(random)
        except Exception as error:  # of the thread, for the process
            self.failures.append(error)

    def clean_up(self) -> None:
        """End what has lapsed, as a worker does."""
        while not self.stop.value:
            self._until_answered(lambda: self.ledger.clean_up(WORKSPACE))
            time.sleep(0.3)

    def _until_answered(self, call: Callable[[], Result]) -> Result | None:
        """Call until Redis answers; None at the end of the run."""
        while True:
            try:
                return call()
            except StoreUnavailable as outage:
                self.outages.append(outage.reason)
                if self.stop.value:
                    return None
                time.sleep(RETRY_S)

    def _hold_once(self, random: Random) -> None:
        name, units = request_id(), random.randint(1, 4)
        spec = RequestSpec(component="t", resources={"gpu": units}, lease_s=LEASE_S, retries=0)
        request = self._until_answered(lambda: self.ledger.submit(WORKSPACE, spec, key=name, own_id=name))
        while request and request.status == RequestState.QUEUED:
            if self.stop.value:
                return
            time.sleep(0.02)
            try:
                request = self._until_answered(lambda: self.ledger.get_request(WORKSPACE, name, poll=True))
            except NotFound:
                return  # it was lost before it was granted
        if request and request.status == RequestState.ALLOCATED:
            self._hold(request, units, random.uniform(0.05, 0.25))

    def _hold(self, request: Request, units: int, for_s: float) -> None:
        began_s, fence = time.monotonic(), request.fence or 0
        with self.grants.get_lock():
            self.grants.value += 1
        lease_end_s = began_s + (request.lease_expires_ms or 0) / 1000 - time.time()
        end: Literal["released", "lost", "unanswered"] = "released"
        while (now_s := time.monotonic()) < began_s + for_s:
            if now_s >= lease_end_s:
                end = "unanswered"
                break
            try:
                answer = self.ledger.heartbeat(WORKSPACE, request.id, fence)
                lease_end_s = now_s + (answer.lease_expires_ms or 0) / 1000 - time.time()
            except StoreUnavailable as outage:
                self.outages.append(outage.reason)
                for_s += time.monotonic() - now_s + RETRY_S  # it works on, and is not done before it was answered again
                time.sleep(RETRY_S)
                continue
            except (NotFound, StaleFence):
                end = "lost"
                break
            time.sleep(HEARTBEAT_S)
        to_s = min(time.monotonic(), lease_end_s)
        if end == "released":
            try:
                released = self._until_answered(lambda: self.ledger.release(WORKSPACE, request.id, fence))
                end = "released" if released else "unanswered"
            except Refusal:
                end = "lost"
        with self.lock:
            self.holdings.append(Holding(request.id, fence, units, began_s, to_s, end))
