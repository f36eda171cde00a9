"""`poolkeeper run` when the service or its Redis ends and starts again: the run waits, and its command goes on."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.backends import wait_until
from tests.support.cli_program import Program
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, RunLab, wait_until_dead
from tests.support.gunicorn_service import Service, service

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that can be stopped and started."""
    with service(tmp_path_factory.mktemp("service"), api_processes=1, api_threads=16) as here:
        yield here


@pytest.fixture
def here(shared_service: Service) -> Service:
    """Return that service, running."""
    if shared_service.stops_within(0):
        shared_service.start()
    return shared_service


@pytest.fixture
def lab(here: Service, tmp_path: Path) -> RunLab:
    """Return a lab on that service, in a workspace of its own."""
    program = Program(f"http://127.0.0.1:{here.port}", tmp_path, f"restarts-{next(_numbers)}")
    return RunLab(program, here.redis.url, tmp_path).create_pool()


def test_redis_is_killed_and_comes_back_while_it_waits_while_it_runs_and_while_it_leaves(here: Service, lab: RunLab) -> None:
    holder = lab.submit_for_all()
    script = 'trap \'echo asked >>"$LOG"; read <"$LOG.go"; echo step-2 >"$POOLKEEPER_CHECKPOINT_FILE"\' USR1\n' + BEGIN + WORK
    os.mkfifo(f"{lab.log}.go")
    options = ("--component", "team", "--gpu", "4", "--checkpoint", "manual", "--lease", "9")
    with lab.run(*options, script=script) as run:
        run.wait_for_message("waiting in gpus")
        here.kill_redis()
        here.redis.start()
        wait_until(lambda: lab.request(holder)["status"] == "allocated", "the service is there again")
        lab.release(holder)
        first = lab.wait_for_start()
        here.kill_redis()
        here.redis.start()
        wait_until(lambda: lab.request(first.request)["status"] == "allocated", "the service is there again")
        waiter = lab.preempt(first)
        lab.wait_for_line("asked")
        here.kill_redis()
        Path(f"{lab.log}.go").write_text("go\n")
        wait_until_dead({first.pid: ""})
        here.redis.start()
        run.wait_for_message("in the queue again")
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        assert lab.wait_for_start(2).reference == "step-2"
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(143)
    assert [line.split()[0] for line in lab.lines()] == ["start", "asked", "start"]
    lab.check_invariants()


def test_the_service_is_stopped_and_started_while_it_waits_and_while_it_runs(here: Service, lab: RunLab) -> None:
    holder = lab.submit_for_all()
    with lab.run("--component", "team", "--gpu", "4", "--lease", "30", script=BEGIN + 'read <"$LOG.go"; exit 5') as run:
        os.mkfifo(f"{lab.log}.go")
        run.wait_for_message("waiting in gpus")
        here.stop()
        here.start()
        lab.release(holder)
        start = lab.wait_for_start()
        here.stop()
        Path(f"{lab.log}.go").write_text("go\n")
        wait_until_dead({start.pid: ""})
        run.wait_for_message("trying again")
        here.start()
        run.wait_for_end(5)
    assert lab.request(start.request)["outcome"] == "failed"
    assert len(lab.lines()) == 1
    lab.check_invariants()


def test_ctrl_c_while_the_service_is_away(here: Service, lab: RunLab) -> None:
    with lab.run(*ALL, "--lease", "none", script=SLEEP) as run:
        start = lab.wait_for_start()
        here.stop()
        os.kill(start.pid, signal.SIGTERM)
        run.wait_for_message("trying again")
        run.send_signal(signal.SIGINT)
        run.wait_for_end(ExitCode.INTERRUPTED)
    assert "the request may still wait or hold units" in run.err
