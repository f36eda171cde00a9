"""The files for Prometheus and Grafana ask only for metrics and labels that a busy service exposes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.api.app import create_app
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.metrics.registry import METRICS, SCRIPT_DURATION
from app.bootstrap import make_services
from app.domain.specs import WorkspaceSettings
from app.settings import Settings
from app.store.nudges import Nudges
from app.store.scripts import observe
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import BROKERS, Site
from tests.support.paths import ROOT

CONFIG = ROOT / "config"
GRAFANA = json.loads((CONFIG / "grafana.json").read_text("utf-8"))
RULES = yaml.safe_load((CONFIG / "prometheus.rules.yml").read_text("utf-8"))["groups"][0]["rules"]

PROMETHEUS_OWN = {"up": {"job", "instance"}}
FUNCTIONS = "max sum count rate increase histogram_quantile topk vector label_values"
WORDS = {*FUNCTIONS.split(), "by", "without", "or", "unless", "and"}

COMPONENT_LIMITS = {"a/b": {"max_waiting": 1}}

ExposedLabels = dict[str, set[str]]
"""Metric → the labels of its rows."""


def _exposed_labels(page: str) -> ExposedLabels:
    result: ExposedLabels = defaultdict(set)
    for family in text_string_to_metric_families(page):
        for row in (row for row in family.samples if not row.name.endswith("_created")):  # of one process alone
            result[row.name] |= row.labels.keys()
    return result


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """Yield the metrics page of a service with a little of everything."""
    client, counted = new_fake(), ProcessMetrics()
    observe(client, partial(counted.time, SCRIPT_DURATION))
    site = Site(client)
    site.services = make_services(client, Settings(brokers=BROKERS), site.clock)
    site.app = create_app(site.services, None, counted)
    site._http = site.app.test_client()
    _preempted(site)
    _starving(site)
    site.services.pools.update_workspace("default", WorkspaceSettings.model_validate({"component_limits": COMPONENT_LIMITS}))
    site.park("sent")
    waits = site.submit(gpu=2)
    site.get(f"/requests/{waits['id']}", wait_s=1, status="queued")
    secret = site.token()
    site.services.tokens.create("ci", "viewer", ["*"], expires_s=3600)
    yield str(site.get("/metrics", root=True, token=secret).body)
    site.services.long_polls.close()


def _preempted(site: Site) -> None:
    """Preempt two requests: one saves its work and returns to the queue, one does not."""
    site.pool(gpu=2)
    site.policy(reserved={"gpu": 1}, limit={"gpu": 2})
    saved, lost = (site.submit(checkpoint="manual") for _ in range(2))
    for victim in (saved, lost):
        site.preempt(site.submit(preemption_class=8)["id"], victim)
    site.clock.advance(20)
    site.post(f"/requests/{saved['id']}/checkpoint", {"fence": saved["fence"], "state": "completed"})
    site.clock.advance(600)
    site.depart()


def _starving(site: Site) -> None:
    site.pool("fair", settings={"discipline": "fair_share", "starvation_timeout_s": 1, "backoff_s": 600}, gpu=1)
    for team in ("first", "second"):
        site.policy(team, pool="fair")
        site.submit(team)
    nudges = Nudges(site.client, site.clock)
    for _ in range(2):
        assert nudges.begin_reconcile("default", "me", 60) == "begun"
        nudges.finish_reconcile("default", "me", None, 60, 0.01, "nothing")
        site.services.periodic_jobs.update_fair_shares()
        site.clock.advance(5)


def _queries() -> Iterator[tuple[str, str]]:
    """Yield each query with its place."""
    for panel in GRAFANA["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in GRAFANA["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["definition"] == variable["query"]["query"]
            yield f"${variable['name']}", variable["definition"]
    for rule in RULES:
        yield rule.get("alert") or rule["record"], rule["expr"]


def _strange(query: str, result: ExposedLabels) -> Iterator[str]:
    """Yield names in a query that are not exposed: metrics, labels in braces, and labels that it groups by."""
    current = result | PROMETHEUS_OWN
    named = set[str]()
    for name, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\s*(?:{([^}]*)})?", _plain(query)):
        if name in WORDS or (not name.startswith(("poolkeeper", "up")) and not matchers):
            continue
        named.add(name)
        if name not in current:
            yield name
        yield from (
            f"{name}{{{label}}}" for label in re.findall(r"(\w+)\s*[=!]", matchers) if label not in current.get(name, ())
        )
    labels = set[str]().union(*(current.get(name, ()) for name in named)) | {"instance"}
    for grouped in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", query):
        yield from (f"by ({label})" for label in re.split(r"\s*,\s*", grouped) if label not in labels)


def _plain(query: str) -> str:
    """Return the query without quoted texts, groupings and ranges."""
    query = re.sub(r'"[^"]*"', '""', query)
    return re.sub(r"\[[^\]]*\]|\b(?:by|without)\s*\([^)]*\)|,\s*\w+\)$", " ", query)


def test_every_query_asks_for_what_is_exposed_labels(page: str) -> None:
    exposed, queries = _exposed_labels(page), list(_queries())
    assert [(where, list(strange)) for where, query in queries if (strange := [*_strange(query, exposed)])] == []
    assert [where for where, query in queries if "poolkeeper_" not in query and "up{" not in query] == []
    assert len(queries) > 50


def test_a_query_for_something_else_is_found(page: str) -> None:
    wrong = 'max by (pool, team) (poolkeeper_pool_used{pool=~"$pool",kye="gpu"}) / rate(poolkeeper_pool_usage[5m])'
    assert list(_strange(wrong, _exposed_labels(page))) == ["poolkeeper_pool_used{kye}", "poolkeeper_pool_usage", "by (team)"]


def test_the_dashboard_shows_every_metric(page: str) -> None:
    shown = " ".join(target["expr"] for panel in GRAFANA["panels"] for target in panel.get("targets", ()))
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in _exposed_labels(page)} - {""}
    assert {name for name in families if not re.search(rf"\b{name}(_bucket|_count|_sum)?\b", shown)} == set(), (
        "add a panel to config/grafana.json"
    )


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in GRAFANA["panels"]:
        position = panel["gridPos"]
        for x in range(position["x"], position["x"] + position["w"]):
            for y in range(position["y"], position["y"] + position["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
                assert x < 24
    ids = [panel["id"] for panel in GRAFANA["panels"]]
    assert len(set(ids)) == len(ids)


def test_a_busy_service_has_every_metric_of_the_table_and_no_other(page: str) -> None:
    exposed = {
        line.split(maxsplit=3)[2]: line.split(maxsplit=3)[3]
        for line in page.splitlines()
        if line.startswith(("# HELP", "# TYPE"))
    }
    kinds = {name: kind for name, kind in exposed.items() if not name.endswith("_created")}
    helps = dict(re.findall(r"^# HELP (\w+) (.+)$", page, re.M))
    assert kinds == {metric.full_name: metric.kind for metric in METRICS.values()}, (
        "let the fixture `page` bring about each metric"
    )
    assert helps.items() >= {metric.full_name: metric.help for metric in METRICS.values()}.items()
    labels: ExposedLabels = defaultdict(set)
    for name, names in _exposed_labels(page).items():
        labels[re.sub(r"_(bucket|count|sum)$", "", name)] |= names - {"le"}
    assert labels == {metric.full_name: set(metric.labels) for metric in METRICS.values()}


def test_the_page_lists_the_alerts_of_the_rules() -> None:
    page = (ROOT / "docs/operations/monitoring.md").read_text("utf-8")
    listed = re.findall(r"^\| `(Poolkeeper\w+)` \| (\w+) \| (\w+) \|", page, re.M)
    alerts = [rule for rule in RULES if "alert" in rule]
    assert listed == [(rule["alert"], rule["labels"]["severity"], rule.get("for", "0m")) for rule in alerts]


def test_the_page_names_metrics_that_exist() -> None:
    page = (ROOT / "docs/operations/monitoring.md").read_text("utf-8")
    questions = page[page.index("## Which number") : page.index("## Alerts")]
    names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", questions)) - {"poolkeeper_"}
    assert len(names) > 25
    assert {f"poolkeeper_{name}" for name in names} - {metric.full_name for metric in METRICS.values()} == set()


def test_every_counter_of_the_scripts_is_read_by_a_metric() -> None:
    scripts = "\n".join(path.read_text("utf-8") for path in (ROOT / "app/store/lua").rglob("*.lua"))
    calls = re.findall(r"counters\.add\(((?:tries > 1 and '\w+' or )?'\w+)", scripts)
    counters = {name for call in calls for name in re.findall(r"'(\w+)", call)}
    assert len(counters) >= 16, "the calls are found in the scripts"
    source = "".join((ROOT / "app/api/metrics" / name).read_text("utf-8") for name in ("registry.py", "metric_values.py"))
    assert {name for name in counters if not re.search(rf"\"{name}[\"|]", source)} == set(), (
        "add a metric to app/api/metrics/registry.py"
    )


# ---- what Prometheus's own tool says, where it is installed


def _promtool(*words: str, page: str = "") -> None:
    tool = shutil.which("promtool")
    if tool is None:  # 316 MB with what Debian puts beside it: not in CI
        pytest.skip("no promtool on PATH (Debian: prometheus)")
    done = subprocess.run([tool, *words], input=page, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_configuration_and_the_rules(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "prometheus.rules.yml"):
        shutil.copy(CONFIG / name, tmp_path)
    (tmp_path / "poolkeeper.token").write_text("pk_secret")
    _promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [query for where, query in _queries() if not where.startswith("$")]
    plain = [query.replace("$__rate_interval", "5m") for query in queries]
    rules: list[dict[str, Any]] = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(plain)]
    written = tmp_path / "queries.yml"
    written.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    _promtool("check", "rules", str(written))


def test_promtool_finds_nothing_wrong_with_the_page(page: str) -> None:
    _promtool("check", "metrics", page=page)
