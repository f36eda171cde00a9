"""A user's app, with tasks that follow the orders of a test and note in Redis each thing that they did.

The importing process sets PROJECT_REDIS, the server; its databases 1 and 2 are the broker and the results.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from celery import Celery, chain, chord
from celery.exceptions import Reject
from kombu import Exchange, Queue
from poolkeeper.celery import PoolTask, TaskAllocation
from redis import Redis

app = Celery("project", set_as_current=False)

PATIENT_S = 30.0
"""The longest time that a task waits for its order to go on, in seconds."""


def configure(redis_url: str, poolkeeper_url: str) -> None:
    """Set the broker, the results and the address of Poolkeeper."""
    app.conf.update(
        broker_url=f"{redis_url}/1",
        result_backend=f"{redis_url}/2",
        poolkeeper={"url": poolkeeper_url},
        broker_transport_options={"socket_timeout": 10, "health_check_interval": 10},
        broker_connection_retry_on_startup=True,
        accept_content=["json", "yaml", "pickle"],
        result_accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        task_send_sent_event=False,
        task_queues=[Queue("celery"), Queue("metrics", Exchange("metrics", type="topic"), routing_key="metrics.#")],
        beat_schedule={"often": {"task": "ticks", "schedule": 0.5, "options": {"resources": {"gpu": 3}}}},
        task_routes={"routed": {"queue": "metrics", "routing_key": "metrics.gpu"}},
    )


if "PROJECT_REDIS" in os.environ:
    configure(os.environ["PROJECT_REDIS"], os.environ["PROJECT_POOLKEEPER"])


def notes() -> Redis:
    """Return a connection to the notes of the tasks."""
    return Redis.from_url(app.conf.result_backend, decode_responses=True)


def note(task_id: str, *message: object) -> None:
    """Append a note that the test can read."""
    with notes() as redis:
        redis.rpush(f"notes:{task_id}", " ".join(map(str, message)))


def wait_for_go(task_id: str, allocation: TaskAllocation | None = None, leave: bool = True) -> bool:
    """True if the task may go on; False if it must leave before."""
    until = time.monotonic() + PATIENT_S
    with notes() as redis:
        while time.monotonic() < until:
            if redis.exists(f"go:{task_id}"):
                return True
            if allocation and leave and allocation.should_checkpoint():
                return False
            time.sleep(0.02)
    raise AssertionError(f"{task_id} was forgotten")


def asking(signature: Any, resources: dict[str, int]) -> Any:
    """Return the signature with the resources that it asks for."""
    return signature.set(resources=resources)


class Ours(PoolTask[Any, Any]):
    """A task with the defaults of this app."""

    component = "team"
    resources = {"gpu": 1}  # noqa: RUF012 - as it is written


@app.task(base=Ours, name="add", bind=True)
def add(self: Ours, x: int, y: int = 0) -> int:
    """Return a sum."""
    note(str(self.request.id), "ran", self.allocation.fence, dict(self.allocation.resources)["gpu"])
    return x + y


@app.task(base=Ours, name="ticks", bind=True)
def ticks(self: Ours) -> None:
    """Note the held units, for all tasks of this kind."""
    note("ticks", "ran", self.allocation.fence, dict(self.allocation.resources)["gpu"])


@app.task(base=Ours, name="total")
def total(numbers: list[int]) -> int:
    """Return the sum of a chord."""
    return sum(numbers)


@app.task(base=Ours, name="routed", bind=True)
def routed(self: Ours) -> Any:
    """Return the exchange and the routing key of the message."""
    info = self.request.delivery_info or {}
    return [info.get("exchange"), info.get("routing_key")]


@app.task(base=Ours, name="whole", bind=True)
def whole(self: Ours) -> list[Any]:
    """Return everything that a run is given."""
    request = self.allocation
    priority = (self.request.delivery_info or {}).get("priority")
    return [request.pool, dict(request.resources), request.request, request.fence, request.directive, request.lost, priority]


@app.task(base=Ours, name="patient", bind=True)
def patient(self: Ours, answer: str = "done", leave: bool = True) -> str:
    """Run until the order to go on, or until the run must leave."""
    request, me = self.allocation, str(self.request.id)
    note(me, "began", request.fence, request.resume, request.checkpoint_reference, os.getpid())
    if not wait_for_go(me, request, leave):
        request.checkpoint_done(f"saved-{request.fence}")
    note(me, "ended", request.fence)
    return answer


@app.task(base=Ours, name="late", bind=True, acks_late=True, reject_on_worker_lost=True)
def late(self: Ours) -> str:
    """Run as `patient`, with a message that stays at the broker meanwhile."""
    return str(patient.run.__func__(self))  # type: ignore[attr-defined]


@app.task(base=Ours, name="deaf", bind=True)
def deaf(self: Ours) -> str:
    """Ignore notices; react only to the signals that end a process."""
    me = str(self.request.id)
    note(me, "began", self.allocation.fence, os.getpid())
    try:
        wait_for_go(me)
    except SystemExit:
        note(me, "terminated", self.allocation.fence, self.allocation.directive)
        raise
    return "done"


@app.task(base=Ours, name="stubborn", bind=True)
def stubborn(self: Ours) -> str:
    """Ignore SIGTERM."""
    me = str(self.request.id)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(me, "began", self.allocation.fence, os.getpid())
    wait_for_go(me)
    return "done"


@app.task(base=Ours, name="fails", bind=True)
def fails(self: Ours, times: int = 1_000_000) -> str:
    """Fail this many times."""
    ran = len(read(str(self.request.id)))
    note(str(self.request.id), "ran", self.allocation.fence, dict(self.allocation.resources)["gpu"])
    if ran < times:
        raise ValueError("no luck")
    return "in the end"


@app.task(base=Ours, name="retries", bind=True, max_retries=2)
def retries(self: Ours, times: int) -> str:
    """Retry this many times."""
    note(str(self.request.id), "ran", self.allocation.fence, dict(self.allocation.resources)["gpu"])
    if self.request.retries < times:
        raise self.retry(countdown=0.2, exc=ValueError("not yet"))
    return f"at try {self.request.retries}"


@app.task(base=Ours, name="autoretries", bind=True, autoretry_for=(ValueError,), retry_backoff=False, default_retry_delay=0)
def autoretries(self: Ours) -> str:
    """Retry by Celery's own rule."""
    note(str(self.request.id), "ran", self.allocation.fence)
    if self.request.retries < 1:
        raise ValueError("not yet")
    return "in the end"


@app.task(base=Ours, name="replaced", bind=True)
def replaced(self: Ours, x: int) -> Any:
    """Replace the task by another one."""
    note(str(self.request.id), "ran", self.allocation.fence)
    return self.replace(asking(add.s(x, 1), {"gpu": 2}))


@app.task(name="plain_one")
def plain_one() -> int:
    """Return 1; this task has no pool."""
    return 1


@app.task(base=Ours, name="replaced_by_many", bind=True)
def replaced_by_many(self: Ours, how: str) -> Any:
    """Replace the task by several, of which the last has its name."""
    several = [plain_one.si(), plain_one.si()]
    return self.replace(chord(several, total.s()) if how == "chord" else chain(plain_one.si(), add.s(1)))


@app.task(base=Ours, name="uncounted", bind=True)
def uncounted(self: Ours, x: int) -> int:
    """End the process between storing the result and counting it in the chord."""
    note(str(self.request.id), "ran", self.allocation.fence)
    vars(self.backend)["on_chord_part_return"] = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    return x


@app.task(base=Ours, name="declines", bind=True, acks_late=True)
def declines(self: Ours) -> str:
    """Fail the first time."""
    me = str(self.request.id)
    note(me, "ran", self.allocation.fence)
    if len(read(me)) == 1:
        raise Reject("not here", requeue=True)
    return "here"


@app.task(base=Ours, name="exits")
def exits() -> None:
    """Exit from the process."""
    sys.exit(3)


@app.task(name="note_error")
def note_error(request: Any, error: Exception, _: Any) -> None:
    """Note an error; this errback has no pool."""
    note(request.id, "errback", type(error).__name__)


def read(task_id: str) -> list[str]:
    """Return the notes of a task so far."""
    with notes() as redis:
        document: list[str] = redis.lrange(f"notes:{task_id}", 0, -1)
        return document
