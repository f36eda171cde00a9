"""The page of numbers: what Prometheus reads of it after known deeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.domain.plan import Trigger
from app.store.keys import key
from app.store.tasks import TaskStore
from tests.api.site import Site

Row = tuple[str, frozenset[tuple[str, str]]]


def _numbers(site: Site, token: str | None = None) -> dict[Row, float]:
    """Every sample of the page, by name and labels."""
    page = site.get("/metrics", root=True, token=token)
    assert (page.status, page.kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    rows = [sample for family in text_string_to_metric_families(page.body) for sample in family.samples]
    numbers = {(row.name, frozenset(row.labels.items())): row.value for row in rows}
    assert len(numbers) == len(rows), "no row is there twice"
    return numbers


def _row(name: str, **labels: Any) -> Row:
    return f"poolkeeper_{name}", frozenset((key, str(value)) for key, value in labels.items())


def test_a_file_that_a_process_is_just_making_is_no_error(
    everywhere: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counter_4711.db").touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    everywhere.pool(gpu=8)
    assert _numbers(everywhere)[_row("pool_capacity", workspace="default", pool="gpus", key="gpu")] == 8


def test_pools_and_policies_are_as_the_ledger_says(everywhere: Site) -> None:
    everywhere.pool(gpu=8, cpu=4)
    everywhere.policy(reserved={"gpu": 2}, limit={"gpu": 6})
    everywhere.submit(gpu=5)
    everywhere.submit(gpu=2)
    numbers = _numbers(everywhere)
    pool = {"workspace": "default", "pool": "gpus"}
    policy = pool | {"component": "orchestrator/team"}
    wanted = {
        _row("pool_capacity", **pool, key="gpu"): 8,
        _row("pool_capacity", **pool, key="cpu"): 4,
        _row("pool_used", **pool, key="gpu"): 5,
        _row("pool_used", **pool, key="cpu"): 0,
        _row("pool_borrowed", **pool, key="gpu"): 3,
        _row("pool_borrowed", **pool, key="cpu"): 0,
        _row("pool_held", **pool, key="gpu"): 0,
        _row("pool_held", **pool, key="cpu"): 0,
        _row("pool_queue_length", **pool): 1,
        _row("pool_active", **pool): 1,
        _row("policy_used", **policy, key="gpu"): 5,
        _row("policy_used", **policy, key="cpu"): 0,
        _row("policy_reserved", **policy, key="gpu"): 2,
        _row("policy_reserved", **policy, key="cpu"): 0,
        _row("policy_limit", **policy, key="gpu"): 6,
        _row("policy_borrowed", **policy, key="gpu"): 3,
        _row("policy_borrowed", **policy, key="cpu"): 0,
        _row("policy_queue_length", **policy): 1,
    }
    of_pools = {row: value for row, value in numbers.items() if row[0].startswith(("poolkeeper_pool", "poolkeeper_policy"))}
    assert of_pools == wanted


def test_who_was_preempted_and_how_it_left(everywhere: Site) -> None:
    everywhere.pool(gpu=2)
    everywhere.policy(profile="training")
    ended, held = (everywhere.submit(checkpoint="manual", retries=retries) for retries in (0, 1))
    first, second = (everywhere.submit(preemption_class=8) for _ in range(2))
    everywhere.preempt(first["id"], ended)
    everywhere.preempt(second["id"], held, reason=Trigger.RECLAIM)
    everywhere.clock.advance(20)
    everywhere.post(f"/requests/{held['id']}/checkpoint", {"fence": held["fence"], "state": "completed"})
    everywhere.clock.advance(600)
    everywhere.depart()
    numbers = {row: value for row, value in _numbers(everywhere).items() if row[0].startswith("poolkeeper_preemption")}
    pool = {"workspace": "default", "pool": "gpus"}
    took = "preemption_checkpoint_duration_seconds"
    by = {"profile": "training", **pool}
    bounds = ["1.0", "5.0", "15.0", "30.0", "60.0", "120.0", "300.0", "600.0", "1800.0", "+Inf"]
    assert numbers == {
        _row("preemptions_total", **by, reason="priority"): 1,
        _row("preemptions_total", **by, reason="reclaim"): 1,
        _row("preemption_victim_requeue_total", **pool): 1,
        _row("preemption_failed_checkpoint_total", **pool): 1,
        _row(f"{took}_count", **pool): 1,
        _row(f"{took}_sum", **pool): 20,
        **{_row(f"{took}_bucket", **pool, le=le): float(number > 2) for number, le in enumerate(bounds)},
    }


def test_what_is_sent_of_tasks(everywhere: Site) -> None:
    everywhere.pool(gpu=2)
    everywhere.policy()
    store = TaskStore(everywhere.client, everywhere.clock)
    for task in ("a", "b", "c"):
        everywhere.park(task)
    everywhere.park("d", not_before="2030-01-01T00:00:00Z")
    first, second = store.take("default", 15, 60, 3).dispatches
    everywhere.clock.advance(2.5)
    store.done("default", [first], 60)
    store.failed("default", [second], 0.5)

    def told() -> dict[str, float]:
        rows = {name: value for (name, labels), value in _numbers(everywhere).items() if labels == {("workspace", "default")}}
        names = ("poolkeeper_tasks_", "poolkeeper_outbox_", "poolkeeper_dispatch", "poolkeeper_redispatch")
        return {name.removeprefix("poolkeeper_"): value for name, value in rows.items() if name.startswith(names)}

    sums = {"dispatches_total": 1, "redispatches_total": 0, "dispatch_failures_total": 1}
    sums |= {"tasks_not_started_total": 0, "tasks_redelivered_total": 0}
    assert told() == sums | {
        "tasks_delayed": 1,
        "outbox_waiting": 1,
        "outbox_oldest_seconds": 2.5,
        "tasks_unstarted": 1,
    }
    everywhere.clock.advance(60)
    store.done("default", store.take("default", 15, 60, 3).dispatches, 60)
    assert told() | {"outbox_oldest_seconds": 0} == sums | {
        "dispatches_total": 2,
        "redispatches_total": 1,
        "tasks_delayed": 1,
        "outbox_waiting": 0,
        "outbox_oldest_seconds": 0,
        "tasks_unstarted": 2,
    }


def test_how_long_decisions_take(site: Site) -> None:
    site.pool()
    assert not [row for row in _numbers(site) if row[0].startswith("poolkeeper_reconcile")]
    site.client.hset(key("counts", "default"), mapping={"reconciles": 4, "reconcile_ms": 1500})
    numbers = _numbers(site)
    assert numbers[_row("reconcile_seconds_count", workspace="default")] == 4
    assert numbers[_row("reconcile_seconds_sum", workspace="default")] == 1.5


def test_requests_are_counted_by_route_and_status_and_never_by_path(site: Site) -> None:
    site.pool()
    for name in ("gpus", "gpus", "none", "a%0Ab"):
        site.get(f"/pools/{name}")
    site.ask("FOO", "/pools")
    site.get("/nowhere/at/all")
    site.get("/healthz", root=True)
    numbers = _numbers(site)

    def count(method: str, route: str, status: int) -> float | None:
        return numbers.get(_row("http_requests_total", method=method, route=route, status=status))

    assert count("POST", "/pools", 201) == 1
    assert count("GET", "/pools/{pool}", 200) == 2
    assert count("GET", "/pools/{pool}", 404) == 1
    assert count("GET", "/pools/{pool}", 400) == 1
    assert count("none", "none", 405) == 1
    assert count("none", "none", 404) == 1
    assert count("GET", "/healthz", 200) == 1
    assert numbers[_row("http_request_duration_seconds_count", method="GET", route="/pools/{pool}")] == 4
    assert len([row for row in numbers if row[0] == "poolkeeper_http_requests_total"]) == 7


def test_only_workspaces_of_the_token_are_told(site: Site) -> None:
    for workspace in ("default", "a", "b"):
        site.post("/pools", {"name": "gpus", "capacity": {"gpu": 8}}, workspace=workspace)

    def told(token: str | None) -> set[str]:
        return {dict(labels)["workspace"] for name, labels in _numbers(site, token) if name == "poolkeeper_pool_capacity"}

    assert told(None) == {"default", "a", "b"}
    assert told(site.token("viewer", workspaces=["default", "a"])) == {"default", "a"}
