"""Estimates of the start, compared with the real starts: the log of a cluster is replayed through the store in virtual time.

The log (`jobs.csv` and `vcs.csv` of a folder) has for each job its team, submission time, run time and number of GPUs. Each
team has a pool of its former size. No job promises a walltime, so an estimate can only use the run times of earlier jobs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from statistics import median

from redis import Redis

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.domain.states import RequestState
from app.service.estimates import Estimator
from app.settings import Settings
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from bench.unlimited import NO_LIMITS

W = "bench"
EVERY = 5
"""The interval of the estimates: one for every fifth job that has to wait."""


@dataclass(frozen=True, slots=True)
class Job:
    """A row of the log."""

    team: str
    submit_s: int
    duration_s: int
    gpus: int


@dataclass(frozen=True, slots=True)
class RecordedEstimate:
    """The estimate at a submission, and the mean of all waits before it."""

    at_ms: int
    earliest_ms: int
    likely_ms: int
    latest_ms: int | None
    mean_ms: float


def run(client: Redis, folder: Path, *, most: int | None = None) -> None:
    """Replay the log, and print the errors of the estimates."""
    client.flushall()
    replay = Replay(client, folder, most)
    replay()
    replay.report()


class Replay:
    """One replay of the log."""

    def __init__(self, client: Redis, folder: Path, most: int | None) -> None:
        self._clock = ManualClock()
        self._start_ms = self._clock.now_ms()
        self._services: Services = make_services(client, Settings(), self._clock)
        ledger, planning = Ledger(client, self._clock), PlanStore(client, self._clock)
        self._estimator = Estimator(planning, ledger, QueryStore(client), QueueStatusStore(client, self._clock), ttl_s=0)
        self._jobs = list(_jobs(folder))[:most]
        self._ends: list[tuple[int, str, int]] = []
        self._recorded: dict[str, RecordedEstimate] = {}
        self._waits: list[float] = []
        self._waiting: dict[str, tuple[Job, int]] = {}
        self._waited = 0
        self.results: list[tuple[RecordedEstimate, int]] = []
        self._services.pools.update_workspace(W, NO_LIMITS)
        for team, gpus in _teams(folder):
            self._services.pools.create(W, PoolSpec.model_validate({"name": team, "capacity": {"gpu": gpus}}))
            self._services.pools.set_policy(W, team, team, PolicySpec())

    def __call__(self) -> None:
        """Submit the jobs and end them, in the order of time."""
        for job in self._jobs:
            self._end_until(job.submit_s)
            self._advance_to(job.submit_s)
            self._submit(job)
        self._end_until(None)

    def report(self) -> None:
        """Print the results."""
        bounded = [(estimate, start) for estimate, start in self.results if estimate.latest_ms is not None]
        inside = sum(estimate.earliest_ms <= start <= (estimate.latest_ms or 0) for estimate, start in bounded)
        print(f"  {len(self._jobs)} jobs, {self._waited} had to wait, {len(self.results)} of them with an estimate")
        print(f"  inside [earliest, latest]: {inside / len(bounded):.0%} of {len(bounded)}; nothing bounds the others")
        errors = [abs(estimate.likely_ms - start) for estimate, start in self.results]
        immediate_errors = [start - estimate.at_ms for estimate, start in self.results]
        mean_errors = [abs(estimate.at_ms + estimate.mean_ms - start) for estimate, start in self.results]
        print(f"  median error of likely: {median(errors) / 60_000:.0f} min")
        for name, errors_without in (
            ("without an estimate, as if it started at once", immediate_errors),
            ("the mean of all waits before", mean_errors),
        ):
            print(f"    {name}: {median(errors_without) / 60_000:.0f} min, so {median(errors) / median(errors_without):.2f} x")

    def _submit(self, job: Job) -> None:
        ask = RequestSpec.model_validate(
            {"component": job.team, "resources": {"gpu": job.gpus}, "lease_s": None, "queue_ttl_s": None, "retries": 0}
        )
        request = self._services.requests.submit(W, ask)
        if request.status == RequestState.ALLOCATED:
            self._record_start(request.id, job, request.fence or 0)
            return
        if request.status != RequestState.QUEUED:
            return
        self._waiting[request.id] = job, self._clock.now_ms()
        self._waited += 1
        if self._waited % EVERY:
            return
        estimate = self._estimator.list_estimates(W, job.team).get(request.id)
        if estimate:
            mean = sum(self._waits) / len(self._waits) if self._waits else 0.0
            times = estimate.earliest_ms, estimate.likely_ms, estimate.latest_ms
            self._recorded[request.id] = RecordedEstimate(self._clock.now_ms(), *times, mean)

    def _record_start(self, request: str, job: Job, fence: int) -> None:
        heappush(self._ends, (self._now_s() + job.duration_s, request, fence))

    def _end_until(self, second: int | None) -> None:
        while self._ends and (second is None or self._ends[0][0] <= second):
            end_s, request, fence = heappop(self._ends)
            self._advance_to(end_s)
            last = self._services.requests.get_last_event_id(W)
            self._services.requests.release(W, request, fence)
            for event in self._services.requests.list_events(W, last, 1000):
                if event.to_status == RequestState.ALLOCATED and event.request in self._waiting:
                    self._record_grant(event.request, event.fence or 0)

    def _record_grant(self, request: str, fence: int) -> None:
        job, since_ms = self._waiting.pop(request)
        now_ms = self._clock.now_ms()
        self._waits.append(now_ms - since_ms)
        if estimate := self._recorded.pop(request, None):
            self.results.append((estimate, now_ms))
        self._record_start(request, job, fence)

    def _now_s(self) -> int:
        return (self._clock.now_ms() - self._start_ms) // 1000

    def _advance_to(self, second: int) -> None:
        self._clock.advance(max(0, second - self._now_s()))


def _jobs(folder: Path) -> Iterator[Job]:
    with (folder / "jobs.csv").open() as file:
        numbers = ((row["team"], row["submit_s"], row["duration_s"], row["gpus"]) for row in csv.DictReader(file))
        rows = [Job(team, int(submit_s), int(duration_s), int(gpus)) for team, submit_s, duration_s, gpus in numbers]
    yield from sorted(rows, key=lambda job: job.submit_s)


def _teams(folder: Path) -> Iterator[tuple[str, int]]:
    with (folder / "vcs.csv").open() as file:
        yield from ((row["team"], int(row["gpus"])) for row in csv.DictReader(file))
