"""The command `python -m bench [WORD …] [NUMBER …] [--quick] [--trace FOLDER]`: all rows, or the named ones.

Estimates are compared with a trace. The numbers are numbers of shapes that the adversary queues.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from redis import Redis

from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis, find_server
from bench import adversary, cycle, declarations, depth, estimates, service, sharing, taking_back, tasks
from bench.timing import machine


def main() -> None:
    """Start a Redis server for the benchmarks, and measure on it."""
    quick = "--quick" in sys.argv
    trace = sys.argv[sys.argv.index("--trace") + 1] if "--trace" in sys.argv else None
    words = [word for word in sys.argv[1:] if not word.startswith("-") and word != trace]
    row_names = [word for word in words if not word.isdecimal()]
    sizes = tuple(int(word) for word in words if word.isdecimal())
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder)) as server:
        client = connect(server.url, timeout_s=60)
        assert isinstance(client, Redis)
        version = client.info("server")
        number = version.get("valkey_version") or version["redis_version"]
        print(f"machine: {machine()}; {find_server().name} {number}, AOF everysec")
        print("limits of the workspaces: null for depth, adversary, http, tasks and estimates; else the defaults")
        if not row_names or "cycle" in row_names:
            print("cycle: submit, grant, release")
            cycle.run(client, 1_000 if quick else 4_000)
        if not row_names or "depth" in row_names:
            print("depth: the same with waiters in the queue")
            depth.run(client, (0, 1_000, 10_000) if quick else (0, 1_000, 100_000, 1_000_000))
        if not row_names or "preemption" in row_names:
            print("preemption: a decision about victims")
            taking_back.run(client, (100, 1_000, 10_000), 5 if quick else 21)
        if not row_names or "shares" in row_names:
            print("shares: fair shares, and grants by them")
            sharing.run((100, 1_000, 10_000), 3 if quick else 9)
            depth.compare(client, 1 if quick else 3)
        if not row_names or "adversary" in row_names:
            print("adversary: many shapes of one workspace, and what they cost")
            adversary.run(sizes or ((1_000, 10_000) if quick else (1_000, 10_000, 100_000)), quick=quick)
        if not row_names or "declarations" in row_names:
            print("declarations: the longest scripts in a pool with many policies")
            declarations.run((100, 1_000) if quick else (100, 1_000, 10_000))
        if not row_names or "http" in row_names:
            print("http: the service under gunicorn")
            service.run(client, server.url, quick=quick)
        if not row_names or "tasks" in row_names:
            print("tasks: Celery tasks, parked until the grant")
            tasks.run(client, server.url, quick=quick)
        if trace and (not row_names or "estimates" in row_names):
            print(f"estimates: {Path(trace).name}, replayed")
            estimates.run(client, Path(trace), most=1_000 if quick else None)


if __name__ == "__main__":  # the process of the clients imports this module, too
    main()
