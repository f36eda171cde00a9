"""A user's app with one task: it works in steps, saves its work now and then, and writes every step to the journal.

The importing process sets PROOFS_FOLDER for the journal and the checkpoints, PROOFS_BROKER, PROOFS_RESULTS, and for the
service PROOFS_URL and PROOFS_TOKEN.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery, signals
from poolkeeper.celery import PoolTask
from poolkeeper.errors import Unavailable

from tests.live.celery_faults.journal import ASKED, BEGIN, END, HOLDS, LEAVES, OUT, SAVED, SAVING, STEP, STORED, Journal

app = Celery("proofs", set_as_current=False)

PATIENT_S = 60.0
"""The longest time that a task waits for its order to go on, in seconds."""
STALL_S = 5
"""After which a connection that says nothing is given up."""

folder = Path()


def configure(place: Path, broker: str, results: str, url: str, token: str) -> None:
    """Set all addresses, and the token of the app."""
    global folder
    folder = place
    patience = {"socket_timeout": STALL_S, "health_check_interval": STALL_S}
    app.conf.update(
        broker_url=broker,
        result_backend=results,
        poolkeeper={"url": url, "token": token},
        broker_transport_options=patience,
        result_backend_transport_options=patience,
        result_backend_always_retry=bool(os.environ.get("PROOFS_INSISTS")),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
    )


if "PROOFS_FOLDER" in os.environ:
    configure(
        Path(os.environ["PROOFS_FOLDER"]),
        os.environ["PROOFS_BROKER"],
        os.environ["PROOFS_RESULTS"],
        os.environ["PROOFS_URL"],
        os.environ["PROOFS_TOKEN"],
    )


def journal() -> Journal:
    """Return the journal."""
    return Journal(folder / "journal")


def gate(task: str) -> Path:
    """Return the file whose presence lets a waiting task go on."""
    return folder / "gates" / task


def total(steps: int) -> int:
    """Return the result of this many steps."""
    return sum(map(worth, range(steps)))


def worth(step: int) -> int:
    """Return the value of a step; all differ, so that a step that is repeated or missing changes the result."""
    return 3 * step * step + 1


class RecordedTask(PoolTask[Any, Any]):
    """A task with the default resources and lease of this app."""

    component = "red"
    resources = {"gpu": 1}  # noqa: RUF012 - as it is written
    lease_s = 3


class TaskProgress:
    """The journal, the checkpoints and the gates of one run."""

    def __init__(self, task: RecordedTask, team: str) -> None:
        self._held, self._task, self._team = task.allocation, str(task.request.id), team
        self.leaving = False

    def record(self, word: str, step: int) -> None:
        """Write an entry to the journal."""
        journal().write(word, self._task, self._team, self._held.fence or 0, step)

    def restored(self) -> tuple[int, int]:
        """Return the first step, and the sum of the steps before it."""
        if not self._held.checkpoint_reference:
            return 0, 0
        step, made = json.loads(Path(self._held.checkpoint_reference).read_text())
        return int(step), int(made)

    def save(self, word: str, step: int, made: int) -> None:
        """Save a checkpoint; the run may end here."""
        path = folder / "saved" / f"{self._task}-{self._held.fence}-{step}"
        path.write_text(json.dumps([step, made]))
        self.record(word, step)
        self.leaving = True  # what is raised now comes after the units were given up
        with suppress(Unavailable):  # the service is away; there will be another
            self._held.checkpoint_done(str(path))
            self.record(SAVED, step)
        self.leaving = False

    def wait(self, step: int) -> None:
        """Wait for the gate of the task; a notice to leave is written to the journal."""
        until, directive_logged = time.monotonic() + PATIENT_S, False
        while not gate(self._task).exists():
            assert time.monotonic() < until, f"{self._task} was forgotten"
            if self.is_preempted and not directive_logged:
                directive_logged = True
                self.record(ASKED, step)
            time.sleep(0.005)

    @property
    def is_preempted(self) -> bool:
        """True if the run must leave."""
        return self._held.should_checkpoint()


@app.task(base=RecordedTask, name="work", bind=True)
def work(
    self: RecordedTask, team: str, steps: int, pause_s: float, save_every: int = 0, hold: int | str = "", heeds: bool = False
) -> int:
    """Work this many steps. Save the work every so often, and before leaving if the run heeds a notice.

    The run waits for its gate at the step `hold`; at `end`, after all steps; at `stored`, after its result is stored.
    """
    diary = TaskProgress(self, team)
    step, made = diary.restored()
    diary.record(BEGIN, step)
    try:
        while step < steps:
            if hold == step:
                diary.wait(step)
            if heeds and diary.is_preempted:
                diary.save(LEAVES, step, made)
            time.sleep(pause_s)
            made += worth(step)
            diary.record(STEP, step)
            step += 1
            if save_every and step % save_every == 0:
                diary.save(SAVING, step, made)
        if hold == END:
            diary.record(HOLDS, step)
            diary.wait(step)
    except BaseException:
        if not diary.leaving:
            diary.record(OUT, step)
        raise
    diary.record(END, step)
    return made


@signals.task_success.connect(sender=work)
def _note_stored(sender: RecordedTask, **_: object) -> None:
    """Note that the result is stored and the units are not yet released."""
    team, steps = (sender.request.args or ())[:2]
    diary = TaskProgress(sender, team)
    diary.record(STORED, steps)
    if (sender.request.kwargs or {}).get("hold") == STORED:
        diary.wait(steps)
