"""docker-compose.yml: read, judged, and its services run as processes of this machine, their hosts mapped to loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.embedded_redis import find_server
from app.store.keys import key
from tests.support.backends import free_port, require, running, wait_until, wait_until_ready
from tests.support.paths import ROOT
from tests.support.poolkeeperd import COMMAND, ask, environment, run, wait_until_served

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
OURS = ("api", "worker", "beat")


def test_every_dependency_has_a_healthcheck() -> None:
    for name in OURS:
        waits = SERVICES[name]["depends_on"]
        assert waits == {"redis": {"condition": "service_healthy"}}
    assert "healthcheck" in SERVICES["redis"]


def test_redis_keeps_its_data_and_is_not_published() -> None:
    assert "redis-data:/data" in SERVICES["redis"]["volumes"]
    assert "ports" not in SERVICES["redis"]


def test_no_call_is_served_without_a_token_or_from_elsewhere() -> None:
    assert SERVICES["api"]["environment"]["POOLKEEPER_REQUIRE_TOKEN"] == "1"
    assert all(published.startswith("127.0.0.1:") for published in SERVICES["api"]["ports"])
    assert not any("ports" in SERVICES[name] for name in ("worker", "beat"))


def test_the_page_says_what_the_file_does() -> None:
    page = (ROOT / "docs" / "operations" / "deploy-one-machine.md").read_text("utf-8")
    compose_file = (ROOT / "docker-compose.yml").read_text("utf-8")
    first_token = re.search(r"^# +(docker compose exec api poolkeeperd .*)$", compose_file, re.M)
    assert first_token
    published = SERVICES["api"]["ports"][0].removesuffix(":8080")
    for text in (first_token[1], f"published on `{published}`", "`redis-data`", "`TRAINING_BROKER_URL`"):
        assert text in page


def test_one_image_and_few_rights() -> None:
    assert {SERVICES[name]["image"] for name in OURS} == {"poolkeeper"}
    for name in OURS:
        assert (SERVICES[name]["read_only"], SERVICES[name]["cap_drop"]) == (True, ["ALL"])
        assert SERVICES[name]["user"] == "poolkeeper"
    text = (ROOT / "Dockerfile").read_text()
    assert "useradd" in text.partition("USER poolkeeper")[0]
    assert re.search(r'^ENTRYPOINT \["poolkeeperd"\]$', text, re.M)
    for folder in ("app", "workers", "config"):
        assert re.search(rf"^COPY {folder} {folder}$", text, re.M)


class Composed:
    """The services, each by its command and environment."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.redis_port, self.port = free_port(), free_port()

    def here(self, text: str) -> str:
        """Return a text of the compose file with the addresses and paths of this machine."""
        maps = {"redis:6379": f"127.0.0.1:{self.redis_port}", "0.0.0.0": "127.0.0.1", "8080": str(self.port)}
        for there, mapped in maps.items():
            text = text.replace(there, mapped)
        return text

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a service, with a free port, one process of the API and frequent cleanups."""
        variables = {variable: self.here(value) for variable, value in SERVICES[name]["environment"].items()}
        few = {"POOLKEEPER_API_PROCESSES": "1", "POOLKEEPER_CLEANUP_INTERVAL_S": "0.2"}
        return {**variables, **few, "POOLKEEPER_PORT": str(self.port)}

    def start_redis(self) -> str:
        """Start Redis with the repository's redis.conf, and return its URL."""
        paths = {"/etc/redis/redis.conf": str(ROOT / "config/redis.conf"), "/data": str(self.folder)}
        words = [paths.get(word, self.here(word)) for word in SERVICES["redis"]["command"]]
        assert words[0] == "redis-server"
        command = [*words[1:], "--port", str(self.redis_port)]
        self._stack.enter_context(running([find_server("path"), *command], self.folder / "redis.log"))
        url = self.here(SERVICES["api"]["environment"]["POOLKEEPER_REDIS_URL"])
        wait_until_ready(url)
        return url

    def start(self, name: str) -> ChildProcess:
        """Start one of the service's containers as a process, in a folder that it cannot write."""
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        variables = environment(self.folder / "nowhere", TMPDIR=str(scratch), **self.environment(name))
        log = self.folder / f"{name}.log"
        return self._stack.enter_context(running([*COMMAND, *SERVICES[name]["command"]], log, env=variables))

    def healthy(self) -> bool:
        """Return the output of the API's health check."""
        kind, python, *words = SERVICES["api"]["healthcheck"]["test"]
        assert (kind, python) == ("CMD", "python")
        return subprocess.run([sys.executable, *map(self.here, words)], capture_output=True, check=False).returncode == 0


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    require("redis")
    with ExitStack() as stack:
        yield Composed(tmp_path, stack)


def test_the_services_work_together_as_soon_as_there_is_a_redis(composed: Composed) -> None:
    assert not composed.healthy()
    api = composed.start("api")
    _check_api_without_redis(composed)
    with connect(composed.start_redis()) as client:
        wait_until_served(composed.port)
        assert (composed.healthy(), api.alive) == (True, True)
        children = [api, *map(composed.start, ("worker", "beat"))]
        assert ask(composed.port, "GET", "/api/v1/pools").status == 401
        words = ["token", "create", "me", "--role", "admin", "--workspace", "*"]
        compose_file = (ROOT / "docker-compose.yml").read_text()
        assert f"docker compose exec api poolkeeperd {' '.join(words)}".replace("*", "'*'") in compose_file
        token = run(composed.folder, *words, **composed.environment("api")).stdout.strip()
        wait_until(lambda: ask(composed.port, "GET", "/api/v1/pools", token=token).status == 200, "the token is good")

        made = ask(composed.port, "POST", "/api/v1/pools", {"name": "p", "capacity": {"gpu": 1}}, token)
        assert made.status == 201
        client.zadd(key("ended", "default"), {"long-ago": 1})
        wait_until(lambda: not client.exists(key("ended", "default")), "beat has ticked, and the worker has done its round")
        for child in children:
            child.stop()
            assert child.exit_code == 0
        for name in OURS:
            _check_log(composed.folder / f"{name}.log")
        assert not (composed.folder / "nowhere").exists()
        assert list((composed.folder / "tmp").iterdir()) == []


def _check_log(log: Path) -> None:
    """Check that each line is an entry, and that one of them says it if the service runs as root."""
    lines = [line for line in log.read_text().splitlines() if line and line != "worker: Warm shutdown (MainProcess)"]
    messages = [json.loads(line)["message"] for line in lines]
    assert sum("root" in message for message in messages) == (os.geteuid() == 0), messages


def _check_api_without_redis(composed: Composed) -> None:
    wait_until(lambda: ask(composed.port, "GET", "/healthz").status == 200, "it is alive")
    away = ask(composed.port, "GET", "/readyz")
    assert (away.status, composed.healthy()) == (503, False)
    refused = ask(composed.port, "GET", "/api/v1/pools", token="pk_" + "x" * 43)
    assert (refused.status, "Retry-After" in refused.headers) == (503, True)
