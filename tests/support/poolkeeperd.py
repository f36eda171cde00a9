"""`poolkeeperd`: run to its end, in this process or in one of its own, or up and serving; and which processes still live."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from app.cli.main import main
from tests.support.backends import free_port, wait_until
from tests.support.paths import ROOT

COMMAND = (sys.executable, "-P", "-c", "from app.cli.main import main; main(prog_name='poolkeeperd')")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the variables of a command: of Poolkeeper's, only the data folder and the given ones."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("POOLKEEPER_", "PROMETHEUS_"))}
    few = {"POOLKEEPER_API_THREADS": "16", "POOLKEEPER_WORKER_PROCESSES": "1"}
    return {**clean, **few, "PYTHONPATH": str(ROOT), "POOLKEEPER_DATA_DIR": str(folder / "data"), **more}


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *words], env=environment(folder, **more), cwd=folder, capture_output=True, text=True, timeout=40, check=False
    )


def run_in_process(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, for tests of its effect and output."""
    root, before = logging.getLogger(), os.getcwd()
    handlers, level = root.handlers, root.level
    root.handlers = []  # so that it sets up its own, as in a process
    os.chdir(folder)
    try:
        with patch.dict(os.environ, environment(folder, **more), clear=True):
            result = CliRunner().invoke(main, words, prog_name="poolkeeperd", catch_exceptions=False)
    finally:
        os.chdir(before)
        root.handlers, root.level = handlers, level
    return subprocess.CompletedProcess(words, result.exit_code, result.stdout, result.stderr)


@dataclass
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: Any


def ask(
    port: int,
    method: str,
    path: str,
    body: object = None,
    token: str | None = None,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 20,
) -> Answer:
    """Send a call to a loopback port."""
    connection = HTTPConnection(host, port, timeout=timeout_s)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    is_json = "json" in answer.headers.get("Content-Type", "")
    return Answer(answer.status, dict(answer.headers), json.loads(text) if is_json and text else text)


def wait_until_served(port: int, within_s: float = 20) -> None:
    """Wait until the service is ready."""
    wait_until(lambda: ask(port, "GET", "/readyz", timeout_s=2).status == 200, f"port {port} is served", within_s)


def descendants(pid: int) -> dict[int, str]:
    """Return every process below this one, with its command line."""
    parents = {int(path.name): stat.parent for path in Path("/proc").iterdir() if path.name.isdigit() and (stat := _stat(path))}
    below, generation = set[int](), {pid}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        below |= generation
    return {child: _command_line(child) for child in sorted(below)}


def living(pids: Mapping[int, str]) -> dict[int, str]:
    """Return those of them that still run; a process that waits to be reaped does not."""
    return {pid: args for pid, args in pids.items() if _has_running_thread(pid)}


def _has_running_thread(pid: int) -> bool:
    """Return whether a thread of the process runs: its files are open until the last one ends, and the first may end before."""
    stats = [_stat(thread) for thread in _list_folders(Path(f"/proc/{pid}/task"))]
    return any(stat.state not in "ZX" for stat in stats if stat)


def _list_folders(parent: Path) -> list[Path]:
    try:
        return list(parent.iterdir())
    except OSError:  # the process has ended
        return []


@dataclass(frozen=True)
class _Stat:
    """State and parent of a process."""

    state: str
    parent: int


def _stat(process: Path) -> _Stat | None:
    try:
        state, parent, *_ = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):  # it has ended
        return None
    return _Stat(state, int(parent))


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:  # it has ended
        return ""


class Up:
    """`poolkeeperd up`, ready."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int, errors: Path) -> None:
        self.process, self.host, self.port, self.errors = process, host, port, errors
        self.said: list[str] = []

    def wait_until_ready(self) -> None:
        """Read the output until the service is ready."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line == "Ctrl-C stops.\n":
                return
        raise AssertionError(f"it ended with {self.process.wait()} and said {self.said}; {self.errors.read_text()}")

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> Answer:
        """Send a call to its API."""
        return ask(self.port, method, f"/api/v1{path}", body, token, host=self.host)

    def pid_of(self, words: str) -> int | None:
        """Return the first process below it with these words in its command line."""
        return min((pid for pid, args in descendants(self.process.pid).items() if words in args), default=None)

    def stop(self, sign: signal.Signals = signal.SIGINT) -> int:
        """Stop the service with one signal, and return its exit code; check that no process is left."""
        below = descendants(self.process.pid)
        self.process.send_signal(sign)
        rest, _ = self.process.communicate(timeout=30)
        self.said += rest.splitlines()
        assert living(below) == {}
        return self.process.returncode


@contextmanager
def up(folder: Path, *words: str, **more: str) -> Iterator[Up]:
    """Run the service for as long as the context; none of its processes is left afterwards."""
    port, errors = free_port(), folder / "errors"
    env = environment(folder, **{"POOLKEEPER_PORT": str(port), "POOLKEEPER_API_PROCESSES": "1"} | more)
    with errors.open("w") as file:
        process = subprocess.Popen(
            [*COMMAND, "up", *words], env=env, cwd=folder, stdout=subprocess.PIPE, stderr=file, text=True
        )
    here = Up(process, env.get("POOLKEEPER_HOST", "127.0.0.1"), port, errors)
    try:
        here.wait_until_ready()
        yield here
    finally:
        below = descendants(process.pid)
        process.kill()
        process.communicate()
        for pid in living(below):
            os.kill(pid, signal.SIGKILL)
