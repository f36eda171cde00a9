"""A small Celery app of two teams that share two cards: `celery --app tasks worker` runs it.

`train` is long and can be stopped: asked to, it saves how far it is, and goes on from there when it is granted again.
`evaluate` is short. Neither knows of queues or capacity: what they need stands in the decorator, and the rest is Poolkeeper's.
"""

import json
import os
import time
from pathlib import Path

from celery import Celery
from poolkeeper.celery import PoolTask

HERE = Path(__file__).resolve().parent
# Of the Redis that `make up` starts, two databases that it does not use itself. Yours is any broker of Celery's; it is named
# here and in brokers.toml.
REDIS = os.environ.get("EXAMPLE_REDIS", f"redis+socket://{HERE.parents[1]}/data/redis.sock")
SAVED = Path(os.environ.get("EXAMPLE_SAVED", HERE / "saved"))
# How soon the units of a worker that is gone are taken back. That it has to leave a task hears within a third of it.
LEASE_S = 6

app = Celery("example", broker=f"{REDIS}?virtual_host=1", backend=f"{REDIS}?virtual_host=2")
app.conf.update(
    worker_prefetch_multiplier=1,
    # Without both a worker may stay deaf after its connection broke.
    broker_transport_options={"socket_timeout": 10, "health_check_interval": 10},
    result_backend_transport_options={"socket_timeout": 10, "health_check_interval": 10},
)


@app.task(base=PoolTask, bind=True, component="vision", resources={"card": 1}, checkpoint="auto", lease_s=LEASE_S)
def train(self, name: str, steps: int = 100) -> str:
    """So many steps of a tenth of a second, from where they were saved."""
    saved = SAVED / f"{name}.json"
    first = json.loads(Path(self.allocation.checkpoint_reference).read_text())["step"] if self.allocation.resume else 0
    print(f"{name} trains from step {first}, fence {self.allocation.fence}", flush=True)
    for step in range(first, steps):
        if self.allocation.should_checkpoint():
            SAVED.mkdir(exist_ok=True)
            saved.write_text(json.dumps({"step": step}))
            print(f"{name} leaves at step {step}", flush=True)
            self.allocation.checkpoint_done(str(saved))  # the task ends here, and comes back
        time.sleep(0.1)
    return f"{name} trained, after {first} steps in an earlier life" if first else f"{name} trained"


@app.task(base=PoolTask, bind=True, component="language", resources={"card": 1}, lease_s=LEASE_S)
def evaluate(self, name: str) -> str:
    """Half a second of work."""
    time.sleep(0.5)
    return f"{name} evaluated in {self.allocation.pool}"
