"""Sends granted tasks to the brokers of people's own Celery apps: threads of the worker's main process, one a workspace.

A task is taken from the outbox under a claim, sent, and then said to be sent. Whatever ends in between, the claim lapses and
the task is sent once more, by this worker or another: at least once, and never forgotten. While a broker is away everything is
put back, and tried again after pauses that grow. Each workspace is tried for itself, so no broker keeps another waiting.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import uniform
from threading import Event, Thread
from typing import NamedTuple, Protocol

from app.celery_brokers import TaskBroker
from app.domain.errors import StoreUnavailable
from app.domain.tasks import OutboxBatch, TaskDispatch
from app.store.nudges import ChannelSubscription
from workers.broker_publisher import BrokerUnavailable, InvalidMessage, Message, MessageRejected, Publisher

log = logging.getLogger(__name__)

CLAIM_S = 15.0
"""How long what was taken is nobody else's: longer than it takes to send, and to see that a broker does not answer."""
IDLE_TIMEOUT_S = 10.0
"""How long nobody looks when nothing was heard, at most."""
MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""How soon a broker that is away is tried again: the first time, and at most."""
STORE_RETRY_S = 1.0
"""How soon Redis is asked again when it was away."""
MORE_DUE_S = 0.05
"""When more is due, but there was nothing to send."""
JOIN_TIMEOUT_S = 2.0
"""How long the end of each thread is waited for."""


class Outbox(Protocol):
    """What is kept to be sent; the store's promise."""

    def take_outbox(self, workspace: str, claim_s: float, start_s: float, start_tries: int) -> OutboxBatch:
        """What is to be sent now, for this caller alone until the claim lapses."""
        ...

    def mark_dispatched(self, workspace: str, dispatches: Sequence[TaskDispatch], start_s: float) -> None:
        """Record that these were sent."""
        ...

    def mark_dispatch_failed(self, workspace: str, dispatches: Sequence[TaskDispatch], again_s: float) -> None:
        """Put these back; they are due again after `again_s`."""
        ...


class WatchedOutbox(Outbox, Protocol):
    """An outbox that can be subscribed to."""

    def subscribe(self) -> ChannelSubscription:
        """Return a subscription to the workspaces that have something to send."""
        ...


class Sender(Protocol):
    """Sends messages to a broker; a Publisher."""

    def publish(self, message: Message) -> None:
        """Publish a message; return when the broker has it."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Pause(NamedTuple):
    """How long to wait."""

    seconds: float
    ignores_wakeups: bool = False
    """Whether also if there is something new to send."""


@dataclass
class _SendResults:
    """What became of what was taken."""

    sent: list[TaskDispatch] = field(default_factory=list)
    refused: list[TaskDispatch] = field(default_factory=list)
    left: list[TaskDispatch] = field(default_factory=list)


class DispatchLoop:
    """Sends the tasks of one workspace, in order, until it is stopped."""

    def __init__(self, workspace: str, route: BrokerRoute, outbox: Outbox) -> None:
        self._workspace, self._outbox = workspace, outbox
        self._destination, self._publisher = route
        self._failures = 0
        self._wakeup, self._stopping = Event(), Event()
        self._thread = Thread(target=self._run, name=f"dispatch {workspace}", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        self._wakeup.set()

    def stop(self) -> None:
        """Take nothing any more; what was taken is still sent."""
        self._stopping.set()
        self._wakeup.set()

    def join(self) -> None:
        """Returns when it has ended, or not much later."""
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                pause = self.run_once()
            except StoreUnavailable as away:
                log.debug("nothing is taken from the outbox of workspace %s: %s", self._workspace, away)
                self._stopping.wait(STORE_RETRY_S)
            except Exception:  # of any library below; without this thread nothing of the workspace would be sent any more
                log.exception("nothing of workspace %s was sent; it is tried again", self._workspace)
                self._stopping.wait(IDLE_TIMEOUT_S)
            else:
                if not self._stopping.is_set():
                    (self._stopping if pause.ignores_wakeups else self._wakeup).wait(pause.seconds)
        self._publisher.close()

    def run_once(self) -> Pause:
        """Take what is due and send it; says when to do so again."""
        self._wakeup.clear()  # before it is looked: what is put there from now on is said again
        batch = self._outbox.take_outbox(
            self._workspace, CLAIM_S, self._destination.start_deadline_s, self._destination.start_tries
        )
        results = self._send(sorted(batch.dispatches, key=lambda dispatch: dispatch.fence or 0))  # as they were granted
        if results.sent:
            self._outbox.mark_dispatched(self._workspace, results.sent, self._destination.start_deadline_s)
        if results.left or (results.refused and not results.sent):
            return self._back_off(results)
        if results.refused:  # by a broker that takes others: it will hardly take these soon
            self._outbox.mark_dispatch_failed(self._workspace, results.refused, MAX_PAUSE_S)
        if self._failures and results.sent:
            self._failures = 0
            log.warning("the broker of workspace %s takes tasks again", self._workspace)
        until_due_s = _seconds_until_due(batch)  # as it was before this was sent, which is due again when nobody has begun it
        return Pause(min(until_due_s, self._destination.start_deadline_s) if results.sent else until_due_s)

    def _back_off(self, results: _SendResults) -> Pause:
        self._failures = 1 if results.sent else self._failures + 1
        pause_s = min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(self._failures - 1, 16)) * uniform(0.75, 1.0)
        self._outbox.mark_dispatch_failed(self._workspace, [*results.refused, *results.left], pause_s)
        return Pause(pause_s, ignores_wakeups=bool(results.left))  # what is refused keeps no other

    def _send(self, dispatches: Sequence[TaskDispatch]) -> _SendResults:
        results = _SendResults()
        for number, dispatch in enumerate(dispatches):
            try:
                self._publisher.publish(Message.from_dispatch(dispatch))
            except InvalidMessage as wrong:  # as if nobody had begun it: so it holds its units for a while and not for ever
                log.error("task %s of workspace %s is no message: %s", dispatch.task, self._workspace, wrong)
            except BrokerUnavailable as away:
                level = logging.DEBUG if self._failures else logging.WARNING
                log.log(level, "the broker of workspace %s is away, tasks are kept: %s", self._workspace, away)
                results.left = list(dispatches[number:])
                break
            except MessageRejected as why:
                log.warning("task %s of workspace %s is not taken: %s", dispatch.task, self._workspace, why)
                results.refused.append(dispatch)
                continue
            results.sent.append(dispatch)
        return results


def _seconds_until_due(batch: OutboxBatch) -> float:
    if batch.more:
        return 0.0 if batch.dispatches else MORE_DUE_S
    return (
        IDLE_TIMEOUT_S
        if batch.next_due_ms is None
        else max(0.0, min(IDLE_TIMEOUT_S, (batch.next_due_ms - batch.now_ms) / 1000))
    )


class BrokerRoute(NamedTuple):
    """Where the tasks of a workspace go, and who sends them there."""

    to: TaskBroker
    publisher: Sender


def broker_routes(destinations: Mapping[str, TaskBroker], environ: Mapping[str, str] = os.environ) -> dict[str, BrokerRoute]:
    """Return the route of every workspace. Raise InvalidSetting if a broker cannot be used."""
    return {workspace: BrokerRoute(to, Publisher(to.address(environ), to.location)) for workspace, to in destinations.items()}


class OutboxDispatcher:
    """The dispatcher: a loop for each workspace that has a broker, and a subscription that wakes them."""

    def __init__(self, outbox: WatchedOutbox, routes: Mapping[str, BrokerRoute]) -> None:
        self._loops = {workspace: DispatchLoop(workspace, route, outbox) for workspace, route in routes.items()}
        self._subscription = outbox.subscribe()
        self._stopping = Event()
        self._thread = Thread(target=self._listen, name="outbox listener", daemon=True)

    def start(self) -> None:
        """Send from now on; without any broker there is nothing to do."""
        if self._loops:
            for loop in self._loops.values():
                loop.start()
            self._thread.start()

    def stop(self) -> None:
        """Take nothing any more. A message being sent is finished; a slow one is due again when its claim lapses."""
        self._stopping.set()
        self._subscription.close()
        for loop in self._loops.values():
            loop.stop()
        for loop in self._loops.values():
            loop.join()
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _listen(self) -> None:
        with self._subscription:
            while not self._stopping.is_set():
                try:
                    for workspace in self._subscription.wait(IDLE_TIMEOUT_S):
                        if loop := self._loops.get(workspace):
                            loop.wake()
                except Exception as error:  # of any library below; who is not woken looks a little later
                    log.warning("nobody hears what there is to send: %s", error)
                    self._stopping.wait(STORE_RETRY_S)
