"""`poolkeeperd` as a person runs it: real processes, a real embedded server, Ctrl-C, wrong settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from app.store.connection import connect
from tests.backends import require, short_folder, wait_until

COMMAND = [sys.executable, "-c", "from app.cli.main import main; main(prog_name='poolkeeperd')"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    require("embedded")
    with short_folder(tmp_path) as made:
        yield made


def environment(folder: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    root = str(Path(__file__).parents[2])
    return {**clean, "PYTHONPATH": root, "POOLKEEPER_DATA_DIR": str(folder / "data"), **more}


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=environment(folder, **more), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_up_shows_the_core_at_work_and_leaves_no_server(folder: Path) -> None:
    for _ in range(2):  # the second time on the data of the first
        done = run(folder, "up", "--once")
        assert done.returncode == 0, done.stderr
        assert "audit: 0 differences" in done.stdout
    assert not list((folder / "data").glob("*.sock"))


def test_up_keeps_house_until_ctrl_c(folder: Path) -> None:
    up = subprocess.Popen([*COMMAND, "up"], env=environment(folder, POOLKEEPER_CLEANUP_INTERVAL_S="0.1"), cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert up.stdout
        for line in up.stdout:
            if "redis-cli -s " in line:
                socket = line.split("redis-cli -s ")[1].split()[0]
                break
        else:
            pytest.fail("it did not say where to look in")
        client = connect(f"unix://{socket}")
        assert isinstance(client, Redis)
        client.sadd("pk:workspaces", "w")
        client.zadd("pk:{w}:ended", {"old": 1})
        wait_until(lambda: not client.exists("pk:{w}:ended"), "the housekeeping to prune what ended long ago")
        up.send_signal(signal.SIGINT)
        rest, errors = up.communicate(timeout=20)
        assert (up.returncode, errors) == (0, "")
        assert rest.endswith("stopped\n")
    finally:
        if up.poll() is None:
            up.kill()
            up.communicate()


def test_audit_says_what_differs_and_repairs(folder: Path) -> None:
    run(folder, "up", "--once")
    clean = run(folder, "audit")
    assert (clean.returncode, clean.stdout) == (0, "tour: 0 differences\n")
    program = (
        "from app.bootstrap import running; from app.settings import Settings; from app.store.connection import connect\n"
        "from app.domain.asks import PoolAsk\n"
        "with running(Settings.read()) as here:\n"
        "    here.services.pools.create('tour', PoolAsk(name='p', capacity={'gpu': 1}))\n"
        "    connect(here.url).hset('pk:{tour}:pool:p', 'used:gpu', 1)\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(folder), check=True, timeout=60)
    found = run(folder, "audit", "tour")
    assert found.returncode == 3
    assert "tour: account p pool used gpu: 1, should be 0" in found.stdout
    assert run(folder, "audit", "--repair").returncode == 0
    assert run(folder, "audit").returncode == 0


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ({"POOLKEEPER_REDIS_URL": "http://nowhere"}, 1, "http"),
        ({"POOLKEEPER_REDIS_URL": "redis://127.0.0.1:1/0"}, 1, "127.0.0.1:1"),
        ({"POOLKEEPER_CHUNK": "many"}, 2, "POOLKEEPER_CHUNK"),
        ({"POOLKEEPER_CONFIG": "none.toml"}, 2, "none.toml"),
    ],
)
def test_wrong_surroundings_are_one_line(folder: Path, wrong: dict[str, str], code: int, said: str) -> None:
    done = run(folder, "up", **wrong)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_two_cannot_share_a_data_folder(folder: Path) -> None:
    first = subprocess.Popen([*COMMAND, "up"], env=environment(folder), cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout
        assert "embedded" in first.stdout.readline()
        second = run(folder, "tidy")
        assert second.returncode == 1
        assert str(first.pid) in second.stderr
    finally:
        first.terminate()
        first.communicate(timeout=20)
    assert first.returncode == 0


def test_help_names_every_command(folder: Path) -> None:
    text = run(folder, "--help").stdout
    assert all(command in text for command in ("up", "audit", "tidy"))
