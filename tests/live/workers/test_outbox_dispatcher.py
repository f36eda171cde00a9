"""Granted tasks through real workers to a real broker: each arrives, whatever is killed, frozen or away on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import NotFound
from app.domain.specs import PoolUpdate
from app.domain.tasks import Task, TaskSpec
from app.store.change_notifications import CLIENT_NAME
from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.keys import key
from app.store.task_outbox import TaskStore
from tests.live.workers.broker import Broker, a_broker, document
from tests.live.workers.test_schedule import Place, W, place
from tests.support.backends import free_port, require, serve, wait_until, wait_until_ready

GPUS = 200


@dataclass
class OutboxInstallation:
    """A ledger, a broker that has not been started, and the workers between them."""

    installation: Place
    broker: Broker
    store: TaskStore
    file: Path

    def worker(self, url: str = "${BROKER_OF_TEAM}", **more: str) -> ChildProcess:
        """Start a worker that dispatches; return when it listens."""
        self.file.write_text(f'[{W}]\nurl = "{url}"\nstart_tries = 2\n', "utf-8")
        environ = {"POOLKEEPER_BROKERS": str(self.file), "BROKER_OF_TEAM": self.broker.url, **more}
        before = self.ears()
        child = self.installation.start("worker", **environ)
        wait_until(lambda: self.ears() >= before + 2, "it hears of nudges, and of what there is to send")
        return child

    def ears(self) -> int:
        """Return the number of connections that listen for tasks."""
        return sum(each["name"] == CLIENT_NAME and each["psub"] == "1" for each in self.installation.client.client_list())

    def park(self, task: str = "a", **more: Any) -> Task:
        """Park a task of one gpu without time limits."""
        request = {"component": "t", "resources": {"gpu": 1}, "lease_s": None, **more.pop("request", {})}
        ask = {"task": task, "name": "proj.train", "request": request, "message": document(task), **more}
        return self.store.park_task(W, TaskSpec.model_validate(ask))

    def wait_for_deliveries(self, *tasks: str) -> list[dict[str, Any]]:
        """Wait until exactly these tasks have arrived, in this order; return the header of each."""
        wait_until(lambda: [task for task, _ in self.broker.list_deliveries()] == list(tasks), f"{', '.join(tasks)} arrive")
        return [deliveries for _, deliveries in self.broker.list_deliveries()]

    def expire(self, key_name: str, task: str = "a") -> None:
        """Expire a claim on a task, or its time to begin."""
        changed = self.installation.client.zadd(key(key_name, W), {task: 1}, xx=True, ch=True)
        assert changed == 1
        self.installation.client.publish(key("outbox_ready", W), "")

    def counted(self, name: str) -> int:
        """Return a counter of the ledger."""
        return self.installation.here.requests.read_counters(W).get(name, 0)


@pytest.fixture
def dispatching(tmp_path: Path) -> Iterator[OutboxInstallation]:
    """Yield a ledger on a Redis of its own."""
    require("redis")
    port = free_port()
    with serve(tmp_path, "--port", str(port)), a_broker(tmp_path / "broker") as broker, ExitStack() as stack:
        url = f"redis://127.0.0.1:{port}/0"
        wait_until_ready(url)
        client = stack.enter_context(connect(url))
        installation = stack.enter_context(place(client, url, tmp_path))
        installation.here.pools.update(W, "p", PoolUpdate(capacity={"gpu": GPUS}))
        yield OutboxInstallation(installation, broker, TaskStore(client), tmp_path / "brokers.toml")


def test_a_task_is_sent_when_it_is_granted_and_its_end_told_when_it_never_is(dispatching: OutboxInstallation) -> None:
    dispatching.broker.start()
    dispatching.worker()
    allocation = dispatching.installation.submit(resources={"gpu": GPUS})
    assert dispatching.park("a").status == "parked"
    assert dispatching.park("b", request={"resources": {"gpu": GPUS + 1}}).status == "ended"
    (ended,) = dispatching.wait_for_deliveries("b")
    assert (ended["fence"], ended["ended"]["status"]) == (None, "rejected")
    dispatching.installation.here.requests.release(W, allocation.id, allocation.fence or 0)
    granted = dispatching.wait_for_deliveries("b", "a")[1]
    environ = dispatching.store.get_task(W, "a")
    assert environ.request
    assert (granted["request"], granted["fence"]) == (environ.request.id, environ.request.fence)
    assert (granted["pool"], granted["resources"], granted["tries"]) == ("p", {"gpu": 1, "step_run": 1}, 1)
    wait_until(lambda: dispatching.store.get_task(W, "a").status == "sent", "it is known to be sent")
    wait_until(lambda: dispatching.store.measure_outbox(W).unstarted == 2, "both are looked after")
    dispatching.store.acknowledge_end(W, "b", ended["request"])
    assert _is_over(dispatching, "b")
    assert dispatching.store.measure_outbox(W).waiting == 0


def _is_over(dispatching: OutboxInstallation, task: str) -> bool:
    try:
        dispatching.store.get_task(W, task)
    except NotFound:
        return True
    return False


def test_a_task_that_does_not_begin_is_sent_again_under_its_fence_and_then_under_another(
    dispatching: OutboxInstallation,
) -> None:
    dispatching.broker.start()
    dispatching.worker()
    dispatching.park()
    dispatching.wait_for_deliveries("a")
    for count in (2, 3):
        wait_until(lambda: dispatching.store.measure_outbox(W).unstarted == 1, "it is known to be sent")
        assert dispatching.store.get_task(W, "a").status == "sent"
        dispatching.expire("unstarted")
        dispatching.wait_for_deliveries(*["a"] * count)
    first, again, anew = dispatching.wait_for_deliveries("a", "a", "a")
    assert (again["fence"], again["tries"]) == (first["fence"], 2)
    assert anew["fence"] > first["fence"]
    assert (anew["request"] != first["request"], anew["tries"]) == (True, 1)
    assert (dispatching.counted("redispatched"), dispatching.counted("not_started")) == (1, 1)


def test_tasks_are_sent_in_the_order_they_were_granted(dispatching: OutboxInstallation) -> None:
    dispatching.broker.start()
    names = [f"t{99 - number}" for number in range(40)]
    for name in names:
        dispatching.park(name)
    dispatching.worker()
    dispatching.wait_for_deliveries(*names)


def test_a_broker_that_is_away_is_waited_for_and_nothing_forgotten(dispatching: OutboxInstallation) -> None:
    worker = dispatching.worker()
    names = [f"t{number}" for number in range(10, 70)]
    for name in names:
        dispatching.park(name)
    wait_until(lambda: dispatching.counted("dispatch_failures") >= 2, "it was tried more than once")
    outbox = dispatching.store.measure_outbox(W)
    assert (outbox.waiting, outbox.unstarted) == (60, 0)
    assert outbox.oldest_ms is not None
    assert {dispatching.store.get_task(W, name).status for name in names} == {"granted"}
    dispatching.broker.start()
    wait_until(lambda: dispatching.store.measure_outbox(W).unstarted == 60, "all are known to be sent")
    assert sorted(task for task, _ in dispatching.broker.list_deliveries()) == names

    dispatching.broker.kill()  # and once more, under a connection that is there
    dispatching.broker.start()
    dispatching.park("late")
    wait_until(lambda: dispatching.broker.list_deliveries()[-1][0] == "late", "it arrives")
    log = dispatching.installation.log("worker")
    assert log.count("is unavailable, tasks are kept") == 1
    assert log.count("accepts tasks again") == 1
    assert dispatching.broker.password not in log
    assert worker.alive


def test_a_worker_killed_with_a_message_on_its_way_is_no_loss(dispatching: OutboxInstallation) -> None:
    # The broker stops answering; then it is killed as well as the first worker.
    dispatching.broker.start()
    first = dispatching.worker()
    dispatching.park("before")
    dispatching.wait_for_deliveries("before")
    with dispatching.broker.frozen():
        dispatching.park()
        wait_until(lambda: _claimed(dispatching, "a"), "it is taken to be sent")
        first.kill()
        dispatching.broker.kill()
    dispatching.broker.start()
    dispatching.worker()
    dispatching.expire("outbox")
    before, deliveries = dispatching.wait_for_deliveries("before", "a")
    assert deliveries["fence"] == before["fence"] + 1


def test_a_worker_killed_before_it_could_say_that_it_sent_sends_it_twice_under_one_fence(
    dispatching: OutboxInstallation,
) -> None:
    dispatching.broker.start()
    first = dispatching.worker()
    dispatching.park("before")
    dispatching.wait_for_deliveries("before")
    client: Any = dispatching.installation.client
    with dispatching.broker.frozen():
        dispatching.park()
        wait_until(lambda: _claimed(dispatching, "a"), "it is taken to be sent")
        client.execute_command("CLIENT PAUSE", 60_000, "WRITE")
    dispatching.wait_for_deliveries("before", "a")
    first.kill()
    wait_until(lambda: dispatching.ears() == 0, "nothing is left of it")
    client.execute_command("CLIENT UNPAUSE")
    assert dispatching.store.get_task(W, "a").status == "granted"
    dispatching.worker()
    dispatching.expire("outbox")
    _, once, twice = dispatching.wait_for_deliveries("before", "a", "a")
    assert once == twice, "so its runner knows that it is the same"


def _claimed(dispatching: OutboxInstallation, task: str) -> bool:
    """True if a dispatcher has claimed the task and not yet reported it."""
    due_ms = dispatching.installation.client.zscore(key("outbox", W), task)
    seconds, micros = dispatching.installation.client.time()
    return bool(due_ms and due_ms > seconds * 1000 + micros // 1000)


def test_it_ends_with_the_worker_also_while_the_broker_says_nothing(dispatching: OutboxInstallation) -> None:
    dispatching.broker.start()
    worker = dispatching.worker()
    dispatching.park("a")
    dispatching.wait_for_deliveries("a")
    with dispatching.broker.frozen():
        dispatching.park("b")
        wait_until(lambda: _claimed(dispatching, "b"), "it is taken to be sent")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait_for_end(10)
    assert worker.exit_code == 0


def test_it_outlives_the_ledgers_redis(dispatching: OutboxInstallation, tmp_path: Path) -> None:
    dispatching.broker.start()
    worker = dispatching.worker()
    dispatching.park("a")
    dispatching.wait_for_deliveries("a")
    port = dispatching.installation.url.rpartition(":")[2].partition("/")[0]
    dispatching.installation.client.shutdown(nosave=True)
    wait_until(lambda: "Trying to re-establish" in dispatching.installation.log("worker"), "the worker has noticed")
    with serve(tmp_path, "--port", port):
        wait_until_ready(dispatching.installation.url)
        with place(dispatching.installation.client, dispatching.installation.url, tmp_path):
            dispatching.park("b")
            dispatching.wait_for_deliveries("a", "b")
        assert worker.alive


def test_two_workers_send_each_task_once(dispatching: OutboxInstallation) -> None:
    dispatching.broker.start()
    dispatching.worker()
    dispatching.worker()
    names = [f"t{number:03}" for number in range(150)]
    for name in names:
        dispatching.park(name)
    wait_until(lambda: len(dispatching.broker.list_deliveries()) >= len(names), "all arrive")
    wait_until(lambda: dispatching.store.measure_outbox(W).unstarted == len(names), "all are known to be sent")
    assert sorted(task for task, _ in dispatching.broker.list_deliveries()) == names


def test_a_broker_that_cannot_be_one_is_one_line_and_the_end(dispatching: OutboxInstallation) -> None:
    dispatching.file.write_text(f'[{W}]\nurl = "${{BROKER_OF_TEAM}}"\n', "utf-8")
    worker = dispatching.installation.start("worker", POOLKEEPER_BROKERS=str(dispatching.file))
    assert worker.wait_for_end(20)
    assert worker.exit_code
    message = f"poolkeeperd worker: {dispatching.file}: {W}: url: the variable BROKER_OF_TEAM is not set"
    assert message in dispatching.installation.log("worker").splitlines()
