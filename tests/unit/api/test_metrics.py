"""`GET /metrics`: the value of each metric after known calls."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.api.app import create_app
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.metrics.registry import SCRIPT_DURATION
from app.api.metrics.text_format import MetricFamily, labels
from app.bootstrap import make_services
from app.domain.plan_steps import Trigger
from app.domain.specs import WorkspaceSettings
from app.settings import Settings
from app.store.keys import key
from app.store.nudges import Nudges
from app.store.scripts import observe
from app.store.task_outbox import TaskStore
from tests.support.in_process_api import Site, an_ask

Row = tuple[str, frozenset[tuple[str, str]]]


def _numbers(site: Site, token: str | None = None) -> dict[Row, float]:
    """Return every sample of the page, by name and labels."""
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
    everywhere.clock.advance(7)
    everywhere.submit(gpu=2, preemption_class=9)
    everywhere.clock.advance(1.5)
    numbers = _numbers(everywhere)
    pool = {"workspace": "default", "pool": "gpus"}
    policy = pool | {"component": "orchestrator/team"}
    expected = {
        _row("pool_capacity", **pool, key="gpu"): 8,
        _row("pool_capacity", **pool, key="cpu"): 4,
        _row("pool_used", **pool, key="gpu"): 5,
        _row("pool_used", **pool, key="cpu"): 0,
        _row("pool_reserved", **pool, key="gpu"): 2,
        _row("pool_reserved", **pool, key="cpu"): 0,
        _row("pool_borrowed", **pool, key="gpu"): 3,
        _row("pool_borrowed", **pool, key="cpu"): 0,
        _row("pool_held", **pool, key="gpu"): 0,
        _row("pool_held", **pool, key="cpu"): 0,
        _row("pool_queue_length", **pool): 2,
        _row("pool_oldest_wait_seconds", **pool): 8.5,
        _row("pool_active", **pool): 1,
        _row("pool_preempting", **pool): 0,
        _row("policy_used", **policy, key="gpu"): 5,
        _row("policy_used", **policy, key="cpu"): 0,
        _row("policy_reserved", **policy, key="gpu"): 2,
        _row("policy_reserved", **policy, key="cpu"): 0,
        _row("policy_limit", **policy, key="gpu"): 6,
        _row("policy_borrowed", **policy, key="gpu"): 3,
        _row("policy_borrowed", **policy, key="cpu"): 0,
        _row("policy_queue_length", **policy): 2,
        _row("policy_oldest_wait_seconds", **policy): 8.5,
    }
    of_pools = {row: value for row, value in numbers.items() if row[0].startswith(("poolkeeper_pool", "poolkeeper_policy"))}
    assert of_pools == expected


def test_the_use_of_the_limits_of_a_component_is_shown_where_a_limit_is_set(everywhere: Site) -> None:
    everywhere.pool(gpu=1)
    everywhere.policy()
    limits = {"component_limits": {"orchestrator/team": {"max_waiting": 5}}}
    everywhere.services.pools.update_workspace("default", WorkspaceSettings.model_validate(limits))
    for _ in range(3):
        everywhere.submit(gpu=1)
    row = {"workspace": "default", "component": "orchestrator/team", "limit": "max_waiting"}
    numbers = {key: value for key, value in _numbers(everywhere).items() if key[0].startswith("poolkeeper_component_limit")}
    assert numbers == {_row("component_limit_use", **row): 2, _row("component_limit", **row): 5}


def test_the_longest_wait_is_found_in_every_lane_and_class(everywhere: Site) -> None:
    everywhere.pool(gpu=4)
    for team, expected in (("a", {"preemption_class": 1}), ("b", {})):
        everywhere.policy(team, reserved={"gpu": 1})
        for gpu in (4, 3):
            everywhere.clock.advance(10)
            everywhere.submit(team, gpu=gpu, **expected)
            everywhere.clock.advance(10)
            everywhere.submit(team, gpu=gpu, preemption_class=8)
    everywhere.policy("idle")
    everywhere.clock.advance(1)
    numbers = _numbers(everywhere)
    pool = {"workspace": "default", "pool": "gpus"}

    def waits(team: str) -> tuple[float, float]:
        of = pool | {"component": f"orchestrator/{team}"}
        return numbers[_row("policy_queue_length", **of)], numbers[_row("policy_oldest_wait_seconds", **of)]

    assert (waits("a"), waits("b"), waits("idle")) == ((3, 61), (4, 31), (0, 0))  # the first of a runs
    assert numbers[_row("pool_oldest_wait_seconds", **pool)] == 61


def test_requests_are_counted_by_state_and_reason_and_waits_by_their_length(everywhere: Site) -> None:
    everywhere.pool(gpu=2)
    everywhere.policy()
    everywhere.submit(gpu=9)
    everywhere.submit("stranger")
    allocation = everywhere.submit(gpu=2)
    waits, ended = everywhere.submit(gpu=2, lease_s=5), everywhere.submit(gpu=2)
    everywhere.post(f"/requests/{ended['id']}/cancel")
    everywhere.clock.advance(20)
    everywhere.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
    everywhere.submit(gpu=1)
    everywhere.clock.advance(6)
    everywhere.services.cleanup.run("default")  # the lease of the former waiter has lapsed
    dropped = everywhere.submit(gpu=1)
    everywhere.delete(f"/requests/{dropped['id']}")
    numbers = _numbers(everywhere)
    counted = {row: value for row, value in numbers.items() if row[0] == "poolkeeper_requests_total"}
    here = {"workspace": "default"}
    pool = here | {"pool": "gpus"}
    assert everywhere.get(f"/requests/{waits['id']}").body["status"] == "expired"
    assert counted == {
        _row("requests_total", **here, pool="", state="queued", reason=""): 7,
        _row("requests_total", **here, pool="", state="rejected", reason="exceeds_capacity"): 1,
        _row("requests_total", **here, pool="", state="rejected", reason="no_policy"): 1,
        _row("requests_total", **here, pool="", state="cancelled", reason=""): 1,
        _row("requests_total", **pool, state="allocated", reason=""): 4,
        _row("requests_total", **pool, state="released", reason=""): 1,
        _row("requests_total", **pool, state="released", reason="dropped"): 1,
        _row("requests_total", **pool, state="expired", reason="lease_lapsed"): 1,
    }
    now = {state: numbers[_row("workspace_requests", **here, state=state)] for state in ("queued", "allocated", "preempting")}
    assert now == {"queued": 0, "allocated": 1, "preempting": 0}
    below = {
        row["le"]: value
        for (name, labels), value in numbers.items()
        if name == "poolkeeper_wait_seconds_bucket" and (row := dict(labels))
    }
    assert (below["0.01"], below["5.0"], below["15.0"], below["+Inf"]) == (2, 2, 3, 4)
    assert numbers[_row("wait_seconds_count", **pool)] == 4
    assert numbers[_row("wait_seconds_sum", **pool)] == 20 + 6


def test_what_was_counted_of_a_pool_goes_with_it(everywhere: Site) -> None:
    for pool in ("gpus", "other"):
        everywhere.pool(pool)
        everywhere.policy(pool=pool)
        allocation = everywhere.submit()
        everywhere.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
        everywhere.delete(f"/pools/{pool}/policies/team") if pool == "gpus" else None
    everywhere.delete("/pools/gpus")
    pools = {dict(labels).get("pool") for _, labels in _numbers(everywhere)}
    assert pools == {None, "", "other"}


def test_satisfaction_and_starvation_are_told_where_shares_are_fair(everywhere: Site) -> None:
    everywhere.pool(gpu=4, settings={"discipline": "fair_share", "starvation_timeout_s": 1, "grace_s": 0, "backoff_s": 600})
    for team in ("greedy", "poor", "idle"):
        everywhere.policy(team)
    for _ in range(4):
        everywhere.submit("greedy")
    everywhere.submit("poor", gpu=3)
    everywhere.services.periodic_jobs.update_fair_shares()
    everywhere.clock.advance(5)
    everywhere.services.periodic_jobs.update_fair_shares()
    everywhere.pool("plain")
    everywhere.policy("poor", pool="plain")
    result = {
        (name.removeprefix("poolkeeper_policy_"), dict(labels)["component"].removeprefix("orchestrator/")): value
        for (name, labels), value in _numbers(everywhere).items()
        if name.endswith(("satisfaction", "starving"))
    }
    assert result == {
        ("satisfaction", "greedy"): 2,
        ("satisfaction", "poor"): 0,
        ("satisfaction", "idle"): 0,
        ("starving", "greedy"): 0,
        ("starving", "poor"): 1,
        ("starving", "idle"): 0,
    }


def test_the_text_is_as_prometheus_reads_it() -> None:
    family = MetricFamily("x", "gauge", "Says.")
    assert list(family.lines()) == []
    family.add(labels(a='say "a\\b"\n', b="c"), 1.5)
    assert list(family.lines()) == ["# HELP x Says.", "# TYPE x gauge", 'x{a="say \\"a\\\\b\\"\\n",b="c"} 1.5']
    (read,) = text_string_to_metric_families("\n".join(family.lines()))
    assert read.samples[0].labels == {"a": 'say "a\\b"\n', "b": "c"}


def test_preemptions_are_counted_by_their_end(everywhere: Site) -> None:
    everywhere.pool(gpu=2)
    everywhere.policy(profile="training")
    ended, allocation = (everywhere.submit(checkpoint="manual", retries=retries) for retries in (0, 1))
    first, second = (everywhere.submit(preemption_class=8) for _ in range(2))
    everywhere.preempt(first["id"], ended)
    everywhere.preempt(second["id"], allocation, reason=Trigger.RECLAIM)
    everywhere.clock.advance(20)
    everywhere.post(f"/requests/{allocation['id']}/checkpoint", {"fence": allocation["fence"], "state": "completed"})
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
    first, second = store.take_outbox("default", 15, 60, 3).dispatches
    everywhere.clock.advance(2.5)
    store.mark_dispatched("default", [first], 60)
    store.mark_dispatch_failed("default", [second], 0.5)

    def result() -> dict[str, float]:
        rows = {name: value for (name, labels), value in _numbers(everywhere).items() if labels == {("workspace", "default")}}
        names = ("poolkeeper_tasks_", "poolkeeper_outbox_", "poolkeeper_dispatch", "poolkeeper_redispatch")
        return {name.removeprefix("poolkeeper_"): value for name, value in rows.items() if name.startswith(names)}

    sums = {"dispatches_total": 1, "redispatches_total": 0, "dispatch_failures_total": 1}
    sums |= {"tasks_not_started_total": 0, "tasks_redelivered_total": 0}
    assert result() == sums | {
        "tasks_delayed": 1,
        "outbox_waiting": 1,
        "outbox_oldest_seconds": 2.5,
        "tasks_unstarted": 1,
    }
    everywhere.clock.advance(60)
    store.mark_dispatched("default", store.take_outbox("default", 15, 60, 3).dispatches, 60)
    assert result() | {"outbox_oldest_seconds": 0} == sums | {
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
    for name, count in (("reconciles", 1), ("reconcile_ms", 1000)):  # before lengths were counted
        site.client.hset(key("counters", "default"), name, str(count))
    nudges = Nudges(site.client, site.clock)
    for took_s in (0.004, 0.3, 0.196):
        site.client.set(key("job_lock", "default", "reconcile"), "me")
        nudges.finish_reconcile("default", "me", None, 60, took_s, "nothing")
    numbers = _numbers(site)
    assert numbers[_row("reconcile_seconds_count", workspace="default")] == 4
    assert numbers[_row("reconcile_seconds_sum", workspace="default")] == 1.5
    below = [
        numbers[_row("reconcile_seconds_bucket", workspace="default", le=le)] for le in ("0.005", "0.25", "0.5", "5.0", "+Inf")
    ]
    assert below == [1, 2, 3, 3, 4]


def test_scripts_and_grants_at_once_are_timed(site: Site) -> None:
    counted = ProcessMetrics()
    client = site.client
    observe(client, partial(counted.time, SCRIPT_DURATION))
    timed = create_app(make_services(client, Settings(), site.clock), None, counted).test_client()
    site.pool(gpu=2)
    site.policy()
    for _ in range(3):  # two are granted
        timed.post("/api/v1/requests", json=an_ask())
    rows = [row for family in text_string_to_metric_families(timed.get("/metrics").text) for row in family.samples]
    numbers = {(row.name, frozenset(row.labels.items())): row.value for row in rows}
    assert numbers[_row("script_duration_seconds_count", script="submit")] == 3
    assert 0 < numbers[_row("script_duration_seconds_sum", script="submit")] < 3
    assert numbers[_row("grant_latency_seconds_count")] == 2
    assert numbers[_row("grant_latency_seconds_sum")] <= numbers[_row("script_duration_seconds_sum", script="submit")] * 10


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


def test_tokens_that_expire_within_seven_days_are_named_and_no_more_than_twenty(site: Site) -> None:
    admin, week_s = site.token(), 7 * 86_400
    for name, expires_s in (("soon", 60), ("week", week_s), ("later", week_s + 1), ("over", 1)):
        site.token("viewer", name=name, workspaces=["default"], expires_s=expires_s)
    site.token("viewer", name="elsewhere", workspaces=["a"], expires_s=60)
    site.token("viewer", name="everywhere", expires_s=60)
    site.clock.advance(1)

    def result(token: str) -> dict[str, float]:
        rows = _numbers(site, token).items()
        return {dict(labels)["token"]: value for (name, labels), value in rows if name == "poolkeeper_token_expires_in_seconds"}

    assert result(admin) == {"soon": 59, "week": week_s - 1, "later": week_s, "elsewhere": 59, "everywhere": 59}
    assert result(site.token("viewer", workspaces=["default"])).keys() == {"soon", "week", "later"}
    for number in range(30):
        site.token("viewer", name=f"t{number:02}", expires_s=100 + number)
    named = result(admin)
    assert (len(named), max(named.values())) == (20, 116)


def test_only_workspaces_of_the_token_are_told(site: Site) -> None:
    for workspace in ("default", "a", "b"):
        site.post("/pools", {"name": "gpus", "capacity": {"gpu": 8}}, workspace=workspace)

    def result(token: str | None) -> set[str]:
        return {dict(labels)["workspace"] for name, labels in _numbers(site, token) if name == "poolkeeper_pool_capacity"}

    assert result(None) == {"default", "a", "b"}
    assert result(site.token("viewer", workspaces=["default", "a"])) == {"default", "a"}


def test_the_policies_of_a_template_are_counted_under_its_name(everywhere: Site) -> None:
    everywhere.pool(gpu=3, settings={"template_max": 2})
    everywhere.policy("user-*", limit={"gpu": 2}, reserved={"gpu": 1})
    everywhere.submit("user-ana", gpu=2)
    everywhere.submit("user-bob", gpu=1)
    everywhere.clock.advance(5)
    everywhere.submit("user-ana", gpu=1)
    everywhere.clock.advance(2)
    numbers = _numbers(everywhere)
    components = {dict(labels).get("component") for _, labels in numbers} - {None}
    assert components == {"orchestrator/user-*"}
    policy = {"workspace": "default", "pool": "gpus", "component": "orchestrator/user-*"}
    assert {row: value for row, value in numbers.items() if row[0].startswith("poolkeeper_policy")} == {
        _row("policy_used", **policy, key="gpu"): 3,
        _row("policy_reserved", **policy, key="gpu"): 2,
        _row("policy_borrowed", **policy, key="gpu"): 1,
        _row("policy_queue_length", **policy): 1,
        _row("policy_oldest_wait_seconds", **policy): 2,
    }
