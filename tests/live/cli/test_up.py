"""`poolkeeperd up` as a person runs it: a whole service of real processes, and everything that can end one of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.cli.supervisor import API_PATIENCE_S
from app.cli.up import stopping
from app.store import embedded_redis
from tests.support.backends import require, short_folder, wait_until
from tests.support.poolkeeperd import COMMAND, Up, descendants, environment, living, run_in_process, up, wait_until_served

POOLS = """
pools:
  - name: gpus
    capacity: {gpu: 2}
    policies:
      - component: team
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    require("embedded")
    with short_folder(tmp_path) as made:
        (made / "pools.yaml").write_text(POOLS)
        yield made


def submit(here: Up, gpu: int, **more: object) -> dict[str, object]:
    answer = here.ask("POST", "/requests", {"component": "team", "resources": {"gpu": gpu}, "lease_s": None, **more})
    assert answer.status == 201, answer.body
    made: dict[str, object] = answer.body
    return made


def status(here: Up, request: dict[str, object]) -> object:
    return here.ask("GET", f"/requests/{request['id']}").body["status"]


def test_with_tokens_it_makes_the_first_and_shows_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("app", "workers", "gunicorn", "celery"):  # a user's own, in the folder where the command is given
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
    own = folder / "own.yaml"
    own.write_text("pools: [{name: gpus, capacity: {gpu: 1}, policies: [{component: nlp}]}]")  # without a policy of the sample
    with up(folder, "--pools", str(own), HOME=str(folder), POOLKEEPER_REQUIRE_TOKEN="1", POOLKEEPER_HOST="::1") as here:
        assert here.said[0].startswith(f"Poolkeeper is ready at http://[::1]:{here.port} ")
        assert str(folder / "data" / "log") in here.said[1]
        assert [line.partition("poolkeeper ")[2] for line in here.said[-4:-1]] == ["pool list", "request list", "top"]
        (token,) = [line.rpartition("=")[2] for line in here.said if "POOLKEEPER_TOKEN=" in line]
        assert here.ask("GET", "/pools").status == 401
        assert [pool["capacity"] for pool in here.ask("GET", "/pools", token=token).body["items"]] == [{"gpu": 1}]
        assert here.ask("GET", "/whoami", token=token).body["roles"] == ["admin"]
        listed = run_in_process(folder, "token", "list")
        assert "up" in listed.stdout
        assert token not in listed.stdout + "".join(path.read_text() for path in (folder / "data" / "log").iterdir())
        check_second_service_is_refused(here, folder, monkeypatch)
        check_end_of_a_poll_under_way(here, token)
        assert (here.said[-1], here.errors.read_text()) == ("stopped", "")
        assert not list((folder / "data").glob("*.sock"))
        littered = {path.name for path in folder.iterdir()} - {"app", "workers", "gunicorn", "celery"}
        assert littered == {"data", "errors", "own.yaml", "pools.yaml"}


def check_second_service_is_refused(here: Up, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a second service ends with one line, which names the process that has the folder."""
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    second = run_in_process(folder, "up", POOLKEEPER_PORT="0")
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert f"process {here.process.pid}" in second.stderr


def check_end_of_a_poll_under_way(here: Up, token: str) -> None:
    """Check that Ctrl-C stops the service after it has answered a long poll."""
    waits = here.ask("POST", "/requests", {"component": "no-such-team", "resources": {"no-such-key": 1}}, token)
    assert waits.status == 201
    with ThreadPoolExecutor(1) as pool:
        path = f"/requests/{waits.body['id']}?wait_s=30&status={waits.body['status']}"
        polling = pool.submit(here.ask, "GET", path, token=token)
        wait_until(lambda: polling.running() or polling.done(), "the poll is on its way")
        assert here.stop() == 0
        assert polling.result(timeout=5).status == 200


@pytest.mark.parametrize("path", ["data/poolkeeper.lock", "data/redis.sock", "data/log/api.log"])
def test_ctrl_c_while_it_starts_stops_it_too(folder: Path, path: str) -> None:
    variables = environment(folder, POOLKEEPER_PORT="0")
    process = subprocess.Popen(
        [*COMMAND, "up"], env=variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until((folder / path).exists, f"{path} is there")
    below = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output.splitlines()[-1], errors) == (0, "stopped", "")
    wait_until(lambda: living(below) == {}, "what it was just starting has ended as well")


def test_ctrl_c_just_as_something_is_finalized_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    went_on = False
    with stopping() as stop:
        Finalized()
        assert not stop.requested.is_set(), "here an error would only be printed"
        stop.requested.wait(10)
        went_on = True
    assert (stop.requested.is_set(), went_on, capsys.readouterr().err) == (True, False, "")


def test_killed_it_loses_nothing_and_what_dies_under_the_next_comes_back(folder: Path) -> None:
    with up(folder, "--pools", "pools.yaml", POOLKEEPER_API_PROCESSES="2") as here:
        assert here.said[0].startswith(f"Poolkeeper is ready at http://127.0.0.1:{here.port} ")
        assert here.ask("GET", "/whoami").body["name"] == "anonymous"
        allocation, waits = submit(here, 2), submit(here, 1)
        assert (allocation["status"], waits["status"]) == ("allocated", "queued")
        below = descendants(here.process.pid)
        assert len(below) > 5
        here.process.kill()
        here.process.wait()
        wait_until(lambda: living(below) == {}, "all that it started has ended")
    for name in ("api", "worker", "beat"):
        for line in (folder / "data" / "log" / f"{name}.log").read_text().splitlines():
            assert "message" in json.loads(line), "each line is an entry"
    with up(folder, POOLKEEPER_CLEANUP_INTERVAL_S="0.2", POOLKEEPER_LOG_FILE_BYTES="1000") as again:
        assert [pool["name"] for pool in again.ask("GET", "/pools").body["items"]] == ["gpus"], "no sample beside it"
        assert (status(again, allocation), status(again, waits)) == ("allocated", "queued")
        kill_every_process(again)
        wait_until_served(again.port)
        assert (status(again, allocation), status(again, waits)) == ("allocated", "queued")
        check_housekeeping(again)
        release = {"fence": allocation["fence"], "outcome": "succeeded"}
        assert again.ask("POST", f"/requests/{allocation['id']}/release", release).status == 200
        assert status(again, waits) == "allocated"
        lines = again.errors.read_text().splitlines()
        assert len(lines) == 4, lines
        assert "exit code -9" in lines[0]
        check_rotation(again, folder / "data" / "log")
        check_second_signal(again)


def check_rotation(here: Up, logs: Path) -> None:
    """Check that a large log was rotated, and that gunicorn goes on in the new one. The run before left `api.log.1`."""
    wait_until((logs / "api.log.2").exists, "the log of the API is rotated", every_s=0.1)
    assert "Starting gunicorn" in (logs / "api.log.1").read_text()
    here.ask("GET", "/pools/after-the-rotation")
    wait_until(lambda: any("after-the-rotation" in file.read_text() for file in logs.glob("api.log*")), "it goes on")


def kill_every_process(here: Up) -> None:
    """Kill one process of the service after the other, and wait until each is started again."""
    command_words = {"api": "gunicorn", "worker": "celeryd", "beat": "celery beat", "the embedded Redis": "redis.sock"}
    for name, words in command_words.items():
        wait_until(lambda words=words: here.pid_of(words), f"{name} runs", every_s=0.05)  # type: ignore[misc]
        before = here.pid_of(words)
        assert before
        os.kill(before, signal.SIGKILL)
        wait_until(lambda name=name: f"{name} ended" in here.errors.read_text(), f"it is said that {name} ended")  # type: ignore[misc]
        wait_until(
            lambda words=words, before=before: here.pid_of(words) not in (None, before),  # type: ignore[misc]
            f"{name} is started again",
            every_s=0.05,
        )


def check_housekeeping(here: Up) -> None:
    """Check that beat and the worker expire a request that is not polled."""
    lapsing = submit(here, 1, lease_s=5, queue_ttl_s=1)
    assert lapsing["status"] == "queued"
    wait_until(lambda: _reason(here, lapsing) == ("expired", "not_polled"), "beat and worker go on", 40, every_s=0.1)


def check_second_signal(here: Up) -> None:
    """Check that a second signal ends the service while it waits for an API that is suspended."""
    api = here.pid_of("gunicorn")
    assert api
    os.kill(api, signal.SIGSTOP)
    start = time.monotonic()
    here.process.send_signal(signal.SIGINT)
    assert here.stop(signal.SIGTERM) == 0
    assert time.monotonic() - start < API_PATIENCE_S, "the second signal ended the waiting"


def _reason(here: Up, request: dict[str, object]) -> tuple[str, str]:
    (event, *_) = here.ask("GET", f"/requests/{request['id']}/events").body["items"][-1:]
    return event["event"], event["reason"]


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        ({"POOLKEEPER_REDIS_URL": "http://nowhere"}, 1, "http"),
        ({"POOLKEEPER_REDIS_URL": "redis://127.0.0.1:1/0"}, 1, "127.0.0.1:1"),
        ({"POOLKEEPER_REDIS_URL": "redis+cluster://127.0.0.1:1"}, 1, "POOLKEEPER_BROKER_URL"),
        ({"POOLKEEPER_API_PROCESSES": "many"}, 2, "POOLKEEPER_API_PROCESSES"),
        ({"POOLKEEPER_PROT": "8102"}, 2, "did you mean POOLKEEPER_PORT?"),
        ({"POOLKEEPER_CONFIG": "none.toml"}, 2, "none.toml"),
        ({"POOLKEEPER_HOST": "0.0.0.0"}, 2, "POOLKEEPER_REQUIRE_TOKEN"),
        ({"POOLKEEPER_HOST": "192.0.2.1", "POOLKEEPER_REQUIRE_TOKEN": "1"}, 1, "192.0.2.1 is not an address of this machine"),
    ],
)
def test_wrong_surroundings_are_one_line(folder: Path, wrong: dict[str, str], code: int, message: str) -> None:
    done = run_in_process(folder, "up", **{"POOLKEEPER_PORT": "0"} | wrong)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert message in done.stderr
    assert not list(folder.glob("data/*.sock"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "none.yaml: cannot be read"),
        ("pools: [", "none.yaml: "),
        ("pools:\n  - name: p\n    capacity: {gpu: -1}\n", "none.yaml: line 3: pools.0.capacity.gpu: must be at least 1"),
        (POOLS + "        reserved: {gpu: 3}\n", "none.yaml: line 7: pool gpus: "),
    ],
)
def test_bad_pools_are_one_line(folder: Path, text: str | None, message: str) -> None:
    if text:
        (folder / "none.yaml").write_text(text)
    done = run_in_process(folder, "up", "--pools", "none.yaml", POOLKEEPER_PORT="0")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert message in done.stderr


def test_a_port_in_use_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words in (["up"], ["api"]):
            done = run_in_process(folder, *words, POOLKEEPER_PORT=str(port), POOLKEEPER_REDIS_URL="unix:///nowhere.sock")
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert f"port {port} of 127.0.0.1 is in use" in done.stderr


@pytest.mark.parametrize("name", ["api", "worker", "beat"])
def test_a_process_alone_needs_a_redis(folder: Path, name: str) -> None:
    done = run_in_process(folder, name)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "POOLKEEPER_REDIS_URL" in done.stderr
