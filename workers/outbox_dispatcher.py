"""The outbox dispatcher sends granted tasks to the brokers of other Celery apps: one thread per workspace in the main process.

A task is taken from the outbox under a claim, sent, and then marked as dispatched. If the process dies in between, the claim
lapses and a worker sends the task again: at least once, and never lost. While a broker is unavailable, all tasks are put back
and tried again after growing pauses. Each workspace has a loop of its own, so no broker delays another one.
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
"""Seconds until a claim lapses: longer than sending takes, or noticing that a broker does not answer."""
IDLE_TIMEOUT_S = 10.0
"""The longest sleep in seconds without a message."""
MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""Seconds before an unavailable broker is tried again: the first pause, and the longest."""
STORE_RETRY_S = 1.0
"""Seconds before Redis is asked again after it was unavailable."""
MORE_DUE_S = 0.05
"""Seconds of pause if more tasks are due, but the batch was empty."""
JOIN_TIMEOUT_S = 2.0
"""Seconds to wait for the end of each thread."""


class Outbox(Protocol):
    """The tasks to send, as the dispatcher needs them from the store."""

    def take_outbox(self, workspace: str, claim_s: float, start_s: float, start_tries: int) -> OutboxBatch:
        """Take the tasks to send now. They belong to this caller until the claim lapses."""
        ...

    def mark_dispatched(self, workspace: str, dispatches: Sequence[TaskDispatch], start_s: float) -> None:
        """Mark tasks as dispatched."""
        ...

    def mark_dispatch_failed(self, workspace: str, dispatches: Sequence[TaskDispatch], again_s: float) -> None:
        """Put tasks back. They are due again after `again_s` seconds."""
        ...


class WatchedOutbox(Outbox, Protocol):
    """An outbox with a subscription."""

    def subscribe(self) -> ChannelSubscription:
        """Return a subscription to the workspaces with a task to send."""
        ...


class Sender(Protocol):
    """A sender of messages to a broker, such as a Publisher."""

    def publish(self, message: Message) -> None:
        """Send a message, and return when the broker has it."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Pause(NamedTuple):
    """The pause of a loop, in seconds."""

    seconds: float
    ignores_wakeups: bool = False
    """True if a new task does not end the pause."""


@dataclass
class _SendResults:
    """The results of one batch: tasks that were sent, refused by the broker, or not tried."""

    sent: list[TaskDispatch] = field(default_factory=list)
    refused: list[TaskDispatch] = field(default_factory=list)
    left: list[TaskDispatch] = field(default_factory=list)


class DispatchLoop:
    """The loop that sends the tasks of one workspace, in order, until it is stopped."""

    def __init__(self, workspace: str, route: BrokerRoute, outbox: Outbox) -> None:
        self._workspace, self._outbox = workspace, outbox
        self._destination, self._publisher = route
        self._failures = 0
        self._wakeup, self._stopping = Event(), Event()
        self._thread = Thread(target=self._run, name=f"dispatch {workspace}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """End the pause of the loop, because there is a task to send."""
        self._wakeup.set()

    def stop(self) -> None:
        """Stop after the present batch."""
        self._stopping.set()
        self._wakeup.set()

    def join(self) -> None:
        """Wait for the end of the thread, at most JOIN_TIMEOUT_S."""
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                pause = self.run_once()
            except StoreUnavailable as away:
                log.debug("no tasks are taken from the outbox of workspace %s: %s", self._workspace, away)
                self._stopping.wait(STORE_RETRY_S)
            except Exception:  # any error of a library: without this thread no task of the workspace would be sent any more
                log.exception("no task of workspace %s was sent; the dispatcher tries again", self._workspace)
                self._stopping.wait(IDLE_TIMEOUT_S)
            else:
                if not self._stopping.is_set():
                    (self._stopping if pause.ignores_wakeups else self._wakeup).wait(pause.seconds)
        self._publisher.close()

    def run_once(self) -> Pause:
        """Take the due tasks and send them. Return the pause before the next time."""
        self._wakeup.clear()  # before the outbox is read, so that a task put there from now on wakes the loop again
        batch = self._outbox.take_outbox(
            self._workspace, CLAIM_S, self._destination.start_deadline_s, self._destination.start_tries
        )
        results = self._send(sorted(batch.dispatches, key=lambda dispatch: dispatch.fence or 0))  # in order of grant
        if results.sent:
            self._outbox.mark_dispatched(self._workspace, results.sent, self._destination.start_deadline_s)
        if results.left or (results.refused and not results.sent):
            return self._back_off(results)
        if results.refused:  # by a broker that accepts other tasks: it will hardly accept these soon
            self._outbox.mark_dispatch_failed(self._workspace, results.refused, MAX_PAUSE_S)
        if self._failures and results.sent:
            self._failures = 0
            log.warning("the broker of workspace %s accepts tasks again", self._workspace)
        # the batch was read before these tasks were sent; they are due again if no worker starts them
        until_due_s = _seconds_until_due(batch)
        return Pause(min(until_due_s, self._destination.start_deadline_s) if results.sent else until_due_s)

    def _back_off(self, results: _SendResults) -> Pause:
        self._failures = 1 if results.sent else self._failures + 1
        pause_s = min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(self._failures - 1, 16)) * uniform(0.75, 1.0)
        self._outbox.mark_dispatch_failed(self._workspace, [*results.refused, *results.left], pause_s)
        return Pause(pause_s, ignores_wakeups=bool(results.left))  # refused tasks do not delay other ones

    def _send(self, dispatches: Sequence[TaskDispatch]) -> _SendResults:
        results = _SendResults()
        for number, dispatch in enumerate(dispatches):
            try:
                self._publisher.publish(Message.from_dispatch(dispatch))
            # treated like a task that no worker starts: it holds its units for a while and not for ever
            except InvalidMessage as wrong:
                log.error("task %s of workspace %s has no valid message: %s", dispatch.task, self._workspace, wrong)
            except BrokerUnavailable as away:
                level = logging.DEBUG if self._failures else logging.WARNING
                log.log(level, "the broker of workspace %s is unavailable, tasks are kept: %s", self._workspace, away)
                results.left = list(dispatches[number:])
                break
            except MessageRejected as why:
                log.warning("the broker does not accept task %s of workspace %s: %s", dispatch.task, self._workspace, why)
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
    """The broker of a workspace, and the sender to it."""

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
        """Start the loops and the subscription, if any workspace has a broker."""
        if self._loops:
            for loop in self._loops.values():
                loop.start()
            self._thread.start()

    def stop(self) -> None:
        """Stop. The message being sent is finished; the claims of the other tasks lapse."""
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
                except Exception as error:  # any error of a library: a loop that is not woken looks a little later
                    log.warning("the outbox subscription failed; new tasks are sent a little later: %s", error)
                    self._stopping.wait(STORE_RETRY_S)
