"""Tasks of your own Celery app that run only while what they need is granted.

A task whose base is `PoolTask` is not published when it is called. Its finished message, with all that Celery put into it, goes
to Poolkeeper, which keeps it until its request is granted and only then sends it to the app's broker: no worker slot waits for
capacity. The task's id, result and signatures are Celery's from the first moment; until it is granted its state is `PARKED`.

**Where it is caught** (`publish_hook`, `message`). Every path by which Celery publishes a task (`delay`, `send_task` by name, a step
of a chain, a chord's body, a retry, beat) ends in `app.amqp.send_task_message`. That function is wrapped, and given a producer
that keeps what it would have published: queue, routing, serializer, headers and signals are Celery's own. What is no `PoolTask`
passes untouched. A message published without the wrapper is parked by the worker that finds it.

**While it runs** (`task`, `allocation`). The worker begins the task under the fence its message names: of two copies of a
message one runs, the other is dropped. A thread keeps the lease. The units are given back when the result has been stored, so
that a worker that dies before has the task redelivered, and a result that is there is not computed again. A store of results
that is away is waited for; in the end the task is parked again instead of losing its result (`result_backend`). Publishing oneself
again (`retry`, `replace`) waits for that moment, too: the allocation is given up and the task parked anew in one step.

**Having to leave** comes in three degrees: `self.allocation.should_checkpoint()` is True; then SIGTERM to the process of a
prefork pool (in a thread `Preempted` is raised); then, when the units are gone, SIGKILL. The process of a pool cannot say that
it died: its parent does (`worker_request`), in threads that no fork interrupts (`fork_safety`), and the task is parked again.

**Never running** (a request that can never be granted, was cancelled or preempted for good, a worker lost too often) is said by
a message of its own, so that it is a worker that stores `REVOKED` or `FAILURE` (`TaskNotGranted`) and calls what is linked to it.
`app.control.revoke` cancels what is parked first and tells the workers only of the rest (`revoke_hook`).
"""

from poolkeeper.celery.allocation import TaskAllocation
from poolkeeper.celery.exceptions import PARKED, NotParked, Preempted, TaskNotGranted
from poolkeeper.celery.publish_hook import install
from poolkeeper.celery.task import PoolTask

__all__ = ["PARKED", "NotParked", "PoolTask", "Preempted", "TaskAllocation", "TaskNotGranted", "install"]
