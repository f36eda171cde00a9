"""Somebody's app with one task: work in steps, saved now and then, every step of which is written down.

Who imports it says where things are: PROOFS_FOLDER for the journal and what is saved, PROOFS_BROKER, PROOFS_RESULTS, and for
the service PROOFS_URL and PROOFS_TOKEN.
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
"""How long a task waits to be told to go on."""
STALL_S = 5
"""After which a connection that says nothing is given up."""

folder = Path()


def configure(place: Path, broker: str, results: str, url: str, token: str) -> None:
    """Where everything is, and by what token the app is let in."""
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
    """Where all is written down."""
    return Journal(folder / "journal")


def gate(task: str) -> Path:
    """The file whose presence lets a task that waits go on."""
    return folder / "gates" / task


def total(steps: int) -> int:
    """The result of so many steps."""
    return sum(map(worth, range(steps)))


def worth(step: int) -> int:
    """What a step adds to the result; each something else, so that neither two of one nor a missing one is overlooked."""
    return 3 * step * step + 1


class RecordedTask(PoolTask[Any, Any]):
    """What all of them ask for, unless it is said at the call."""

    component = "red"
    resources = {"gpu": 1}  # noqa: RUF012 - as it is written
    lease_s = 3


class TaskProgress:
    """What one run writes, saves, and waits for."""

    def __init__(self, task: RecordedTask, team: str) -> None:
        self._held, self._task, self._team = task.allocation, str(task.request.id), team
        self.leaving = False

    def record(self, word: str, step: int) -> None:
        """Written down."""
        journal().write(word, self._task, self._team, self._held.fence or 0, step)

    def restored(self) -> tuple[int, int]:
        """The step to begin with, and what the ones before it came to."""
        if not self._held.checkpoint_reference:
            return 0, 0
        step, made = json.loads(Path(self._held.checkpoint_reference).read_text())
        return int(step), int(made)

    def save(self, word: str, step: int, made: int) -> None:
        """Such that it can be gone on from; the run may end here."""
        path = folder / "saved" / f"{self._task}-{self._held.fence}-{step}"
        path.write_text(json.dumps([step, made]))
        self.record(word, step)
        self.leaving = True  # what is raised now comes after the units were given up
        with suppress(Unavailable):  # nobody hears it; there will be another
            self._held.checkpoint_done(str(path))
            self.record(SAVED, step)
        self.leaving = False

    def wait(self, step: int) -> None:
        """Until it may go on; that it is asked to leave meanwhile is written down."""
        until, directive_logged = time.monotonic() + PATIENT_S, False
        while not gate(self._task).exists():
            assert time.monotonic() < until, f"{self._task} was forgotten"
            if self.is_preempted and not directive_logged:
                directive_logged = True
                self.record(ASKED, step)
            time.sleep(0.005)

    @property
    def is_preempted(self) -> bool:
        """Whether it has to leave."""
        return self._held.should_checkpoint()


@app.task(base=RecordedTask, name="work", bind=True)
def work(
    self: RecordedTask, team: str, steps: int, pause_s: float, save_every: int = 0, hold: int | str = "", heeds: bool = False
) -> int:
    """So many steps, each of which takes a while. It saves its work every so often, and also when asked to if it heeds that.

    At the step it is told to hold it waits to be let go on; at `end`, when all steps are done; at `stored`, when its result is.
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
    """The result is stored, and the units are not given back yet."""
    team, steps = (sender.request.args or ())[:2]
    diary = TaskProgress(sender, team)
    diary.record(STORED, steps)
    if (sender.request.kwargs or {}).get("hold") == STORED:
        diary.wait(steps)
