"""The cost of a client with many shapes to other clients: the longest script, a release, and the submits of another workspace.

A workspace queues requests of different shapes behind one allocation of the whole pool. Then it makes all calls that its tokens
allow, while workers reconcile it. Each case has its own server and its own time: a case that does not end is cut off.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis
from app.store.keys import prefix
from app.store.lua_linker import load_commands
from bench.adversary_calls import ELSEWHERE, Case, audit_once, be_adversary, compute_until, reconcile_until, submit_elsewhere
from bench.timing import quantile

MAX_SCRIPT_MS, MAX_RELEASE_MS, MAX_RATIO = 10, 5, 3
RELEASE_SIZE = 10_000
"""The number of shapes at which the time of a release is bounded."""
LOGGED_US = 50
"""The microseconds from which the server logs a script."""
SLOWEST_NAMED = 6
END_S = 2
AUDIT_S = 8
"""The seconds after which an audit is ended: each of its calls is bounded, but there are many."""


class CutOff(Exception):  # noqa: N818 - a state of the world
    """The end of the time of a case."""


@dataclass(slots=True)
class Figures:
    """The figures of one case."""

    longest_ms: dict[str, float] = field(default_factory=dict)
    noise_ms: float = 0
    fill_s: float = 0
    large_release_s: float = 0
    release_p99_ms: float = 0
    quiet_p99_ms: float = 0
    control_p99_ms: float = 0
    busy_p99_ms: float = 0
    left_out: int = 0
    cut_off: str = ""


def run(sizes: tuple[int, ...], *, quick: bool) -> None:
    """Print a line for each number of shapes, and at the middle one a line for each variant of the pool."""
    middle = sizes[len(sizes) // 2]
    cases = [Case(shapes) for shapes in sizes]
    cases += [Case(middle, keys=2), Case(middle, discipline="fair_share")]
    for case in cases:
        _print(case, measure(case, seconds=2 if quick else 5))


def measure(case: Case, seconds: float) -> Figures:
    """Return the figures of a case, on a server of its own.

    A client of another workspace submits for `seconds` alone, and for the same time beside the adversary.
    """
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder)) as server:
        client = connect(server.url, timeout_s=5)
        assert isinstance(client, Redis)
        log_scripts(client)
        server_pid = int(client.info("server")["process_id"])
        with _apart(submit_elsewhere, server.url) as elsewhere, _apart(be_adversary, server.url, case) as connection:
            adversary = Remote(connection, case.max_s)
            try:
                _act(figures, adversary, server.url, elsewhere, seconds)
            except CutOff as cut_off:
                figures.cut_off = str(cut_off)
        figures.longest_ms, figures.noise_ms = longest_scripts(server.url)
        if figures.cut_off:
            os.kill(server_pid, signal.SIGKILL)  # a script that writes cannot be ended otherwise
    return figures


def _act(figures: Figures, adversary: Remote, url: str, elsewhere: Connection, seconds: float) -> None:
    """Measure in this order: the quiet time, the control beside processes that call nothing, the submits of all shapes, the
    release of the whole pool, releases one by one, all calls."""
    figures.quiet_p99_ms = _p99_ms(elsewhere, lambda: time.sleep(seconds))
    with _apart(compute_until, url), _apart(compute_until, url):
        figures.control_p99_ms = _p99_ms(elsewhere, lambda: time.sleep(seconds))
    figures.fill_s = _seconds(lambda: adversary.call("fill"))
    figures.large_release_s = _seconds(lambda: adversary.call("release_all_units"))
    figures.release_p99_ms = quantile(adversary.call("time_releases"), 0.99) * 1000
    with _apart(reconcile_until, url):
        figures.busy_p99_ms = _p99_ms(elsewhere, lambda: adversary.call("call_everything", seconds))
    figures.left_out = adversary.call("count_left_out")
    with _apart(audit_once, url) as audit:
        audit.poll(AUDIT_S)


class Remote:
    """The adversary in its process. Its methods are called by name, and it sends the name of the call under way."""

    def __init__(self, connection: Connection, max_s: float) -> None:
        self._connection, self._max_s, self._until = connection, max_s, time.monotonic() + max_s

    def call(self, method: str, *args: object) -> Any:
        """Call a method and return its result. Raise CutOff if the time of the case ends before."""
        act, began = method, time.monotonic()
        self._connection.send((method, args))
        while self._connection.poll(self._until - time.monotonic()):
            kind, value = self._connection.recv()
            if kind == "returned":
                return value
            act, began = value, time.monotonic()
        raise CutOff(f"cut off after {self._max_s} s, {time.monotonic() - began:.1f} s into {act}")


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _p99_ms(elsewhere: Connection, act: Callable[[], object]) -> float:
    """Return the p99 (ms) of the submits of another workspace during an act."""
    elsewhere.send("measure")
    act()
    elsewhere.send("report")
    return quantile(elsewhere.recv(), 0.99) * 1000


@contextmanager
def _apart(work: Callable[..., None], url: str, *args: object) -> Iterator[Connection]:
    """Run `work` in another process, which ends when its connection is closed, or soon after."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, url, *args))
    process.start()
    theirs.close()
    try:
        ours.recv()  # it is ready
        yield ours
    finally:
        ours.close()
        process.join(END_S)
        process.kill()


def log_scripts(client: Redis) -> None:
    """Make the server log its scripts, and load all scripts, so that each is called by its hash."""
    for command in load_commands().values():
        client.script_load(command.text)
    client.config_set("slowlog-max-len", 1_000_000)
    client.config_set("slowlog-log-slower-than", LOGGED_US)


def longest_scripts(url: str) -> tuple[dict[str, float], float]:
    """Return the milliseconds of the longest call of each command, the longest first, and of any in the other workspace.

    A call of the other workspace has little work: if it is long, it waited for a core. Return nothing if the server does not
    answer.
    """
    names = {command.sha: name for name, command in load_commands().items()}
    longest: dict[str, float] = {}
    try:
        client = connect(url, timeout_s=5)
        assert isinstance(client, Redis)
        client.ping()
        for entry in client.slowlog_get(1_000_000):
            words = entry["command"].decode(errors="replace").split(" ", 4)
            if words[0] == "EVALSHA":
                name = ELSEWHERE if words[3] == prefix(ELSEWHERE) else names[words[1]]
                longest[name] = max(longest.get(name, 0), entry["duration"] / 1000)
    except RedisError:
        return {}, 0
    noise_ms = longest.pop(ELSEWHERE, 0)
    return dict(sorted(longest.items(), key=lambda row: -row[1])), noise_ms


def _print(case: Case, figures: Figures) -> None:
    print(f"  {case.label} (load {os.getloadavg()[0]:.1f}): queued in {figures.fill_s:.1f} s")
    if figures.large_release_s:
        print(f"    the whole pool released in {figures.large_release_s:.2f} s")
    if figures.cut_off:
        print(f"    {figures.cut_off}")
    first, *others = [f"{name} {ms:.1f} ms" for name, ms in list(figures.longest_ms.items())[:SLOWEST_NAMED]] or ["not known"]
    print(f"    longest scripts: {first} (bound {MAX_SCRIPT_MS} ms), {', '.join(others)}")
    print(f"    the longest of the other workspace, which has no work, waited for a core: {figures.noise_ms:.1f} ms")
    if figures.left_out:
        print(f"    {figures.left_out} calls were left out: those before took too long")
    if figures.release_p99_ms:
        bound = f" (bound {MAX_RELEASE_MS} ms)" if case.shapes == RELEASE_SIZE else ""
        print(f"    a release that grants, p99 {figures.release_p99_ms:.1f} ms{bound}")
    if figures.busy_p99_ms:
        ratio = figures.busy_p99_ms / figures.quiet_p99_ms
        print(f"    submits of another workspace, p99 {figures.busy_p99_ms:.1f} ms, in quiet {figures.quiet_p99_ms:.1f} ms: "
              f"{ratio:.1f} x (bound {MAX_RATIO} x)")  # fmt: skip
        print(f"    the control, beside as many processes that compute and call nothing: p99 {figures.control_p99_ms:.1f} ms, "
              f"{figures.control_p99_ms / figures.quiet_p99_ms:.1f} x")  # fmt: skip
