"""Traces: a span for each request, task and script, in one tree; sent where the variables say, and nothing of it when off."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from app.api.app import create_app
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.metrics.registry import SCRIPT_DURATION
from app.bootstrap import make_services
from app.cli.process_commands import ROOT, commands
from app.settings import Settings
from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.scripts import observe
from app.store.workspaces import WorkspaceRegistry
from app.tracing import UNTRACED_URLS, Tracing
from tests.support.backends import free_port, require, serve, wait_until, wait_until_ready
from tests.support.poolkeeperd import environment
from tests.support.servers import Servers

with_the_extra = pytest.mark.skipif(not find_spec("opentelemetry"), reason="the extra otel is not installed")

SPANS = ("opentelemetry.sdk.trace", "opentelemetry.instrumentation", "opentelemetry.exporter")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@with_the_extra
def test_a_request_is_a_span_with_its_scripts_below(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    exporter, client, counted = InMemorySpanExporter(), servers.client("redis"), ProcessMetrics()
    traces = Tracing("poolkeeper-api", exporter)
    observe(client, partial(counted.time, SCRIPT_DURATION), traces.script_span)
    app = create_app(make_services(client, Settings()), None, counted)
    traces.instrument_app(app)
    http = app.test_client()
    http.post("/api/v1/pools", json={"name": "p", "capacity": {"gpu": 1}}, headers={"traceparent": PARENT})
    http.get("/api/v1/pools/nowhere")
    http.get("/metrics")
    traces.flush()
    spans = [span for span in exporter.get_finished_spans() if span.resource.attributes["service.name"] == "poolkeeper-api"]
    made, missed = [span for span in spans if span.name.startswith(("GET", "POST"))]
    assert (made.name, missed.name) == ("POST /api/v1/pools", "GET /api/v1/pools/<pool>")
    assert made.parent is not None
    assert f"{made.context.trace_id:032x}-{made.parent.span_id:016x}" == PARENT[3:-3]
    below = {span.name for span in spans if span.parent and span.parent.span_id == made.context.span_id}
    assert {"script create_pool", "script get_pool"} <= below
    (script,) = [span for span in spans if span.name == "script create_pool"]
    assert dict(script.attributes or {})["db.stored_procedure.name"] == "pool_create"
    assert 'poolkeeper_script_duration_seconds_count{script="pool_create"} 1.0' in http.get("/metrics").text, "and it is timed"


@pytest.mark.parametrize(
    ("url", "traced"),
    [
        ("http://localhost:8080/metrics", False),
        ("https://pool.example/readyz?x=1", False),
        ("http://[::1]:8080/healthz", False),
        ("http://metrics.example:8080/api/v1/pools", True),
        ("http://localhost/api/v1/pools/metrics", True),
        ("http://localhost/api/v1/requests?label=healthz", True),
    ],
)
def test_what_machines_ask_every_few_seconds_is_left_out_and_nothing_that_is_called_like_it(url: str, traced: bool) -> None:
    assert any(re.search(pattern, url) for pattern in UNTRACED_URLS.split(",")) is not traced


class Collector:
    """Takes in what is sent by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        """The name of the service, and a span of it."""
        handler = type("ItsHandler", (_CollectorHandler,), {"collector": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def listening(self) -> Iterator[Collector]:
        """Listen for as long as the context."""
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def below(self, name: str) -> set[str]:
        """Return the names of the spans whose parents have this name."""
        parents = {span.span_id for _, span in self.spans if span.name == name}
        return {span.name for _, span in self.spans if span.parent_span_id in parents}


class _CollectorHandler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        """Receive spans."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        message = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for of in message.resource_spans:
            (service,) = [
                attribute.value.string_value for attribute in of.resource.attributes if attribute.key == "service.name"
            ]
            self.collector.spans += [(service, span) for scope in of.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so named above
        """Log nothing."""


@with_the_extra
def test_a_worker_sends_its_tasks_and_their_scripts(tmp_path: Path) -> None:
    require("redis")
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with serve(tmp_path, "--port", str(port)), Collector().listening() as collector:
        wait_until_ready(url)
        with connect(url) as client:
            WorkspaceRegistry(client).add("team")
        environ = environment(
            tmp_path,
            POOLKEEPER_REDIS_URL=url,
            POOLKEEPER_TRACES="1",
            POOLKEEPER_CLEANUP_INTERVAL_S="0.2",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_BSP_SCHEDULE_DELAY="100",
        )
        started = [
            ChildProcess(commands()[name], tmp_path / f"{name}.log", env=environ, cwd=ROOT) for name in ("worker", "beat")
        ]
        try:
            wait_until(lambda: "script clean_up" in collector.below("run/workers.tasks.cleanup"), "a clean-up is told of", 30)
        finally:
            for each in started:
                each.stop()
        assert {service for service, _ in collector.spans} == {"poolkeeper-worker"}


BOTH = "import workers.tasks\nfrom app.wsgi import application\napplication(); workers.tasks.services()"
"""The first lines of a process of the API, and of a worker."""


def _loaded(program: str, **more: str) -> list[str]:
    """Return the tracing modules that the program has imported at its end; redis-py imports some others by itself."""
    environ: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    program += (
        f"\nSPANS = {SPANS!r}\nimport json, sys; print(json.dumps([name for name in sys.modules if name.startswith(SPANS)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, **more},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def test_nothing_of_it_is_imported_when_off() -> None:
    assert _loaded(BOTH, POOLKEEPER_REDIS_URL="unix:///nowhere.sock") == []


@with_the_extra
def test_it_is_imported_when_on() -> None:
    assert _loaded(BOTH, POOLKEEPER_REDIS_URL="unix:///nowhere.sock", POOLKEEPER_TRACES="1") != []
