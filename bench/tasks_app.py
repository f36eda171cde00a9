"""A Celery app whose tasks, plain and parked, only sleep; `python -m bench.tasks_app KIND COUNT MS` sends them."""

from __future__ import annotations

import os
import sys
import time

from celery import Celery
from poolkeeper.celery import PoolTask
from redis import Redis

SOCKET = os.environ["BENCH_BROKER"]
PATIENCE_S = 60

app = Celery("bench", broker=f"redis+socket://{SOCKET}", set_as_current=False)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    broker_transport_options={"socket_timeout": 10, "health_check_interval": 10},
    broker_connection_retry_on_startup=True,
)
done = Redis(unix_socket_path=SOCKET, db=1)


@app.task(name="plain")
def plain(ms: int) -> None:
    """Wait, as a plain task."""
    time.sleep(ms / 1000)
    done.incr("done")


@app.task(name="parked", base=PoolTask, component="t0", resources={"gpu": 1})
def parked(ms: int) -> None:
    """Wait, as a parked task that holds one unit."""
    time.sleep(ms / 1000)
    done.incr("done")


def main() -> None:
    """Send a number of tasks of a kind. Print the seconds until the last one was done, and until all were sent."""
    kind, count, ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    task = {"plain": plain, "parked": parked}[kind]
    done.delete("done")
    start = time.perf_counter()
    for _ in range(count):
        task.delay(ms)
    sent = time.perf_counter()
    while int(done.get("done") or 0) < count:
        if time.perf_counter() - sent > PATIENCE_S:
            sys.exit(f"only {done.get('done')!r} of {count} tasks ran")
        time.sleep(0.002)
    print(time.perf_counter() - start, sent - start)


if __name__ == "__main__":
    main()
