"""Tasks of your own Celery app that run only while what they need is granted.

A task whose base is `PoolTask` is not published when it is called. Its finished message, with all that Celery put into it, goes
to Poolkeeper, which keeps it until its request is granted and only then sends it to the app's broker: no worker slot waits for
capacity. The task's id, result and signatures are Celery's from the first moment; until it is granted its state is `PARKED`.

**Where it is caught** (`publish_hook`, `message`). Every path by which Celery publishes a task (`delay`, `send_task` by name, a
step of a chain, a chord's body, a retry, beat) ends in `app.amqp.send_task_message`. That function is wrapped, and given a
producer that records the message instead of publishing it: queue, routing, serializer, headers and signals are Celery's own.
A task that is no `PoolTask` is published unchanged. A message that was published without the wrapper is parked by its worker.

**While it runs** (`task`, `allocation`). The worker begins the task under the fence its message names: of two copies of a
message one runs, the other is dropped. A thread keeps the lease. The units are released when the result has been stored: a
worker that dies before has the task redelivered, and a stored result is not computed again. If the result backend cannot be
reached, storing is retried; in the end the task is parked again instead of losing its result (`result_backend`). A task that
publishes itself again (`retry`, `replace`) also waits for that moment: its release and the new parking are one step.

**Preemption** comes in three degrees: `self.allocation.should_checkpoint()` is True; then SIGTERM to the process of a
prefork pool (in a thread `Preempted` is raised); then, when the units are gone, SIGKILL. The process of a pool cannot say that
it died: its parent does (`worker_request`), in threads that no fork interrupts (`fork_safety`), and the task is parked again.

**A task that will never run** (its request can never be granted, was cancelled or preempted for good, or lost its worker too
often) is reported by a message of its own: a worker stores `REVOKED` or `FAILURE` (`TaskNotGranted`), and calls linked tasks.
`app.control.revoke` first cancels parked tasks and tells the workers only of the others (`revoke_hook`).
"""

from poolkeeper.celery.allocation import TaskAllocation
from poolkeeper.celery.exceptions import PARKED, NotParked, Preempted, TaskNotGranted
from poolkeeper.celery.publish_hook import install
from poolkeeper.celery.task import PoolTask

__all__ = ["PARKED", "NotParked", "PoolTask", "Preempted", "TaskAllocation", "TaskNotGranted", "install"]
