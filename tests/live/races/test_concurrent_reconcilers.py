"""Several processes decide at the same time, and others ask, hold, answer and leave meanwhile: never one unit too many, no
fence given twice, and clean books."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.live.races.concurrent_reconcilers import MIN_PREEMPTIONS, ODDS, ReconcilerProcess, Workload, run_process
from tests.live.races.invariants import require_none
from tests.live.races.processes import CONTEXT, TIMES, run_together
from tests.live.races.test_random_clients import START_MS, url_of
from tests.live.races.workspace_state import WorkspaceState, check_settled
from tests.support.servers import Servers
from tests.support.strict_reconciler import StrictReconciler

DECIDE, WORK = 3, 3
FAIR = {"discipline": "fair_share", "starvation_timeout_s": 0, "backoff_s": 0, "fair_share_tolerance": 1.0}
SHIFTS = {
    "at leisure": Workload(seed=1, operations=120 * TIMES, chunk=200, settings={}),
    "in small pieces": Workload(seed=2, operations=80 * TIMES, chunk=1, settings={}),
    "by class": Workload(seed=3, operations=80 * TIMES, chunk=200, settings={"discipline": "classes", "max_victims": 2}),
    "by fair shares": Workload(seed=4, operations=160 * TIMES, chunk=200, settings=FAIR),
    "by fair shares, in small pieces": Workload(seed=5, operations=160 * TIMES, chunk=2, settings=FAIR),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_many_decide_at_once(servers: Servers, name: str) -> None:
    client, shift = servers.client("redis"), SHIFTS[name]
    time, working = CONTEXT.Value("q", START_MS), CONTEXT.Value("i", WORK)
    head = ReconcilerProcess(url_of(client), 99, shift, time, working)
    head.set_up()
    jobs = [(url_of(client), number, shift, time, working, number < DECIDE) for number in range(DECIDE + WORK)]
    done: Counter[str] = Counter()
    for result in run_together(run_process, jobs, 60 * TIMES):
        done.update(result)
    assert {verb for verb in (*ODDS, "passes") if not done[verb]} == set(), "no process did this"
    counts = come_to_rest(head).count_events("preempting", "preempted", "forced")
    assert counts["preempting"] >= MIN_PREEMPTIONS, f"hardly any request had to leave: {counts}"
    assert counts["preempted"] + counts["forced"] > 0, f"no request left: {counts}"


def come_to_rest(head: ReconcilerProcess) -> WorkspaceState:
    """Let all victims leave, without new requests, and return the final state."""
    reconciling = StrictReconciler(head.plan_store, head.ledger)
    while head.ledger.resume_unfinished(head.workspace):
        pass
    now = WorkspaceState(head.client, head.workspace, head.time.now_ms())
    for _ in range(60):
        while reconciling.run(head.workspace):
            pass
        now = WorkspaceState(head.client, head.workspace, head.time.now_ms())
        require_none([*now.faults(), *now.superfluous_preemptions()])
        if not now.of_status("preempting"):
            break
        head.time.advance(2)
        head.ledger.clean_up(head.workspace)
    require_none(now.leftovers())
    return check_settled(head.client, head.ledger, head.workspace, head.time.now_ms())
