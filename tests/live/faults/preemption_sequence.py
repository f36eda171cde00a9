"""A sequence in small parts in which capacity is reclaimed, reassigned and reprieved; its process may die at any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.connection import ConnectionPool

from app.store.connection import RedisClient
from app.store.master_id import track_master
from app.store.scripts import ScriptReply, Scripts
from tests.live.faults.change_sequence import SelfKillingConnection
from tests.live.races.preemption_scenario import GRACE_S, KINDS, TIMEOUT_S, PreemptionScenario

CHUNK: Final = 1

SEQUENCE: Final[Mapping[str, Callable[[PreemptionScenario], Any]]] = {
    "two have to leave": PreemptionScenario.reconcile,
    "the pool shrinks": lambda scenario: scenario.update_pool(gpu=6),
    "the first owner gives up": lambda scenario: scenario.cancel_request("w"),
    "its victim is passed on": PreemptionScenario.reconcile,
    "the pool grows": lambda scenario: scenario.update_pool(gpu=10),
    "a third asks": lambda scenario: scenario.submit("high", own_id="y", gpu=4, preemption_class=9),
    "it is decided": PreemptionScenario.reconcile,
    "time passes": lambda scenario: scenario.clock.advance(GRACE_S),
    "due victims end or leave": PreemptionScenario.enforce_deadlines,
    "it is decided again": PreemptionScenario.reconcile,
    "more ask": lambda scenario: [scenario.submit("high", own_id=f"z{each}", gpu=1, preemption_class=9) for each in range(3)],
    "some of them have to leave": PreemptionScenario.reconcile,
    "one of them gives up": lambda scenario: scenario.cancel_request("z0"),
    "and the next one": lambda scenario: scenario.cancel_request("z1"),
    "needless victims are reprieved": PreemptionScenario.reconcile,
    "more time passes": lambda scenario: scenario.clock.advance(TIMEOUT_S),
    "due victims are told to end": PreemptionScenario.enforce_deadlines,
    "all time is up": lambda scenario: scenario.clock.advance(GRACE_S),
    "the last leave": PreemptionScenario.enforce_deadlines,
    "the rest is decided": PreemptionScenario.reconcile,
}


class RecordingScripts(Scripts):
    """Notes which commands were called."""

    def __init__(self, client: RedisClient, notes: list[str]) -> None:
        super().__init__(client)
        self.notes = notes

    def call(self, command: str, workspace: str, /, **args: Any) -> ScriptReply:
        """Call the script, and note its reply."""
        reply = super().call(command, workspace, **args)
        self.notes.append(f"{command} {reply.tag}")
        return reply


def set_up(client: RedisClient) -> PreemptionScenario:
    """Set up the workspace before the sequence."""
    return KINDS["for two"].set_up(client, CHUNK)


def run_sequence(path: str, diary: Path, last: int, sent: bool, begun_ms: int) -> None:
    """Run the sequence until it or the process ends; the diary records the progress and the time."""
    SelfKillingConnection.last, SelfKillingConnection.sent = last, sent
    pool = ConnectionPool(connection_class=SelfKillingConnection, path=path, decode_responses=True, protocol=2)
    world = PreemptionScenario(track_master(Redis(connection_pool=pool)), CHUNK)
    world.clock.advance((begun_ms - world.clock.now_ms()) / 1000)
    notes: list[str] = []
    world.ledger._scripts = world.plan_store._scripts = RecordingScripts(world.client, notes)
    for number, act in enumerate(SEQUENCE.values()):
        diary.write_text(f"{number} {world.clock.now_ms()}")
        world.attempt(lambda act=act: act(world))  # type: ignore[misc]
    diary.write_text("\n".join([f"{len(SEQUENCE)} {world.clock.now_ms()}", str(SelfKillingConnection.calls), *notes]))
