"""Tasks of a Celery app that run only while their units are granted.

A call of a task with the base `PoolTask` does not publish it. Its complete message goes to Poolkeeper. Poolkeeper keeps the
message until the request of the task is granted, and then sends it to the broker of the app. So no worker slot waits for
capacity. The id, the result and the signatures of the task are Celery's from the call on. Until the grant the state of the task
is `PARKED`.

**Publishing** (`publish_hook`, `message`). Celery publishes every task by `app.amqp.send_task_message`: `delay`, `send_task` by
name, a step of a chain, the body of a chord, a retry, an entry of beat. The hook wraps that function and gives it a producer
that records the message instead of publishing it: queue, routing, serializer, headers and signals are Celery's own. A task that
is no `PoolTask` is published unchanged. If a message of a `PoolTask` was published without the hook, its worker parks the task.

**The run** (`task`, `allocation`). The worker starts the task under the fence that its message names: of two copies of a
message one runs, the other is dropped. A thread prolongs the lease by heartbeats. The units are released after the result is
stored. If a worker dies before that, the task is sent again; a stored result is not computed again. If the result backend
cannot be reached, storing is retried. If that takes too long, the task is parked again, so that no result is lost
(`result_backend`). If a task publishes itself again (`retry`, `replace`), its release and the new parking are one step at the
end of the run.

**Preemption** has three steps: `self.allocation.should_checkpoint()` is True; then SIGTERM to the process of a prefork pool (in
a thread `Preempted` is raised); then, when the units are gone, SIGKILL. A killed process of a prefork pool cannot report its
end. Its parent reports the end (`worker_request`), in threads that no fork interrupts (`fork_safety`). Then the task is parked
again.

**A task that will never run** gets an end notice: its request can never be granted, was cancelled or preempted for good, or
its worker was lost too often. A worker then stores `REVOKED` or `FAILURE` (`TaskNotGranted`), and calls linked tasks.
`app.control.revoke` first cancels parked tasks, and sends only the others to the workers (`revoke_hook`).
"""

from poolkeeper.celery.allocation import TaskAllocation
from poolkeeper.celery.exceptions import PARKED, NotParked, Preempted, TaskNotGranted
from poolkeeper.celery.publish_hook import install
from poolkeeper.celery.task import PoolTask

__all__ = ["PARKED", "NotParked", "PoolTask", "Preempted", "TaskAllocation", "TaskNotGranted", "install"]
