"""A small Celery app of two teams that share two cards: `celery --app tasks worker` runs it.

`train` is long and can be preempted: it then saves its progress, and resumes from it after the next grant. `evaluate` is short.
Neither knows queues or capacity: the decorator names the units that a task needs, and Poolkeeper does the rest.
"""

import json
import os
import time
from pathlib import Path

from celery import Celery
from poolkeeper.celery import PoolTask

HERE = Path(__file__).resolve().parent
# Two databases of the Redis that `make up` starts, which Poolkeeper does not use itself. Your app may use any broker of Celery;
# name it here and in brokers.toml.
REDIS = os.environ.get("EXAMPLE_REDIS", f"redis+socket://{HERE.parents[1]}/data/redis.sock")
SAVED = Path(os.environ.get("EXAMPLE_SAVED", HERE / "saved"))
# The seconds after which the units of a lost worker are taken back. A task gets a directive within a third of this time.
LEASE_S = 6

app = Celery("example", broker=f"{REDIS}?virtual_host=1", backend=f"{REDIS}?virtual_host=2")
app.conf.update(
    worker_prefetch_multiplier=1,
    # Without both, a worker may receive nothing more after its connection broke.
    broker_transport_options={"socket_timeout": 10, "health_check_interval": 10},
    result_backend_transport_options={"socket_timeout": 10, "health_check_interval": 10},
)


@app.task(base=PoolTask, bind=True, component="vision", resources={"card": 1}, checkpoint="auto", lease_s=LEASE_S)
def train(self, name: str, steps: int = 100) -> str:
    """Run steps of a tenth of a second each, from the saved step on."""
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
    return f"{name} trained, after {first} steps in an earlier run" if first else f"{name} trained"


@app.task(base=PoolTask, bind=True, component="language", resources={"card": 1}, lease_s=LEASE_S)
def evaluate(self, name: str) -> str:
    """Work for half a second."""
    time.sleep(0.5)
    return f"{name} evaluated in {self.allocation.pool}"
