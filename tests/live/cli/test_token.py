"""`poolkeeperd token` on an embedded server, also beside a service that runs in a process of its own."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.bootstrap import ServiceContext, make_services, open_services
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.domain.tokens import Token
from app.settings import Settings
from app.store import embedded_redis
from app.store.connection import StoreMisconfigured, connect
from app.store.embedded_redis import LOCK_FILE, SOCKET_PATH_LIMIT
from tests.support.backends import require, short_folder
from tests.support.cli_program import Terminal
from tests.support.paths import ROOT
from tests.support.poolkeeperd import run_in_process

SERVICE = """
import sys
from app.bootstrap import open_services
from app.settings import Settings
with open_services(Settings.read(), serving=True) as here:
    print(here.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    require("embedded")
    with short_folder(tmp_path) as made:
        yield made


def environment(data: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    return {**clean, "PYTHONPATH": str(ROOT), "POOLKEEPER_DATA_DIR": str(data), **more}


def token(data: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return poolkeeperd(data, "token", *words, **more)


def poolkeeperd(data: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run_in_process(ROOT, *words, POOLKEEPER_DATA_DIR=str(data), **more)


@contextmanager
def service(data: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the URL of a server in the data folder, and the process that offers it."""
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(
        command, env=environment(data), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip(), process
            if process.returncode != -signal.SIGKILL:  # which the test sent
                process.communicate(timeout=20)
                assert process.returncode == 0
        finally:
            process.kill()


def recognised(url: str, secret: str) -> Token | None:
    with connect(url) as client:
        return make_services(client, Settings()).tokens.authenticate(secret)


def test_a_token_is_made_listed_and_revoked(folder: Path) -> None:
    components = [word for name in ("team-ml", "b/x", "in/*") for word in ("--component", name)]
    places = ("--workspace", "default", "--workspace", "lab", *components)
    made = token(folder, "create", "ci", "--role", "requester", *places, "--sensitive", "--rate", "20", "--expires", "90d")
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"pk_[A-Za-z0-9_-]{43}\n", made.stdout)
    first, *more = made.stderr.splitlines()
    says = r"token ci, id (\w+): requester\+sensitive in default,lab; on an embedded Redis, data in (.+)"
    written = re.fullmatch(says, first)
    assert written
    assert written[2] == str(folder)
    assert more == ["It is the first: from now on every call there needs a token.", "Its secret, shown only now:"]
    again = token(folder, "create", "ci", "--role", "admin")
    assert (again.returncode, again.stdout, again.stderr) == (1, "", "poolkeeperd: there is a token ci already\n")
    second = token(folder, "create", "a-long-name", "--role", "operator")
    assert (second.returncode, "It is the first" in second.stderr) == (0, False)
    listed = token(folder, "list").stdout
    head, ci, ops = (line.split() for line in listed.splitlines())
    assert head == ["ID", "NAME", "ROLE", "WORKSPACES", "COMPONENTS", "RATE", "WAITING", "SHAPES", "CREATED", "EXPIRES"]
    assert ci[:8] == [written[1], "ci", "requester+sensitive", "default,lab", "team-ml,b/x,in/*", "20", "0/10000", "0/1000"]
    assert ops[1:8] + ops[9:] == ["a-long-name", "operator", "default", "-", "default", "none", "none", "never"]
    places_of_roles = [line.index(role) for line, role in zip(listed.splitlines(), ("ROLE", ci[2], ops[2]), strict=True)]
    assert len(set(places_of_roles)) == 1
    secret = made.stdout.strip()
    assert secret not in listed
    assert hashlib.sha256(secret.encode()).hexdigest() not in listed
    revoked = token(folder, "revoke", "ci")
    assert (revoked.returncode, revoked.stdout, revoked.stderr) == (0, "", f"token ci, id {written[1]}, is revoked\n")
    assert [line.split()[1] for line in token(folder, "list").stdout.splitlines()] == ["NAME", "a-long-name"]
    assert "It was the last" in token(folder, "revoke", "a-long-name").stderr


def test_beside_a_running_service_its_server_is_used_and_no_other_serves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(folder) as (url, process):
        secret = token(folder, "create", "ci", "--role", "viewer").stdout.strip()
        record = recognised(url, secret)
        assert record
        unknown = token(folder, "revoke", "missing")
        assert (unknown.returncode, unknown.stderr) == (1, "poolkeeperd: there is no token missing\n")
        assert record.name == "ci"
        assert "ci" in token(folder, "list").stdout
        assert token(folder, "revoke", record.id).returncode == 0
        assert recognised(url, secret) is None
        for words in (("audit",), ("tidy",)):
            done = poolkeeperd(folder, *words)
            assert (done.returncode, done.stderr) == (0, "")
        monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
        settings = Settings(data_dir=folder)
        with pytest.raises(StoreMisconfigured, match=f"process {process.pid},"), open_services(settings, serving=True):
            pytest.fail("both serve")
        with open_services(settings) as here:
            assert (here.url, here.server) == (url, None)
        assert process.poll() is None
    assert token(folder, "list").stdout.splitlines()[1:] == []


def submit_without_a_token(here: ServiceContext) -> None:
    """Submit one request that holds units and two that wait, the last of them without a limit of time."""
    here.services.pools.create("w", PoolSpec(name="p", capacity={"gpu": 1}))
    here.services.pools.set_policy("w", "p", "t", PolicySpec())
    for ttl_s in (600, 600, None):
        here.services.requests.submit("w", RequestSpec(component="t", resources={"gpu": 1}, lease_s=60, queue_ttl_s=ttl_s))


TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def test_the_first_token_is_not_made_unasked_while_requests_have_none(folder: Path) -> None:
    words = ("create", "ci", "--role", "admin")
    with open_services(Settings(data_dir=folder), serving=True) as here:
        submit_without_a_token(here)
        refused = token(folder, *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        lines = refused.stderr.splitlines()
        assert lines[0] == "This would be the first token: from then on every call needs a token."
        condition = r"\. If the clients get no token"
        assert re.fullmatch(rf"Allocated without a token: 1 request{condition}, the leases end at {TIME}\.", lines[1])
        ends = rf"the queue TTLs end at {TIME}( to {TIME})?, 1 of them never"
        assert re.fullmatch(rf"Queued without a token: 2 requests{condition}, {ends}\.", lines[2])
        refusal = "no token was created: there is no terminal for the question; --yes creates the token without asking"
        assert lines[3:] == [f"poolkeeperd: {refusal}"]
        assert here.services.tokens.list_tokens() == []
        needed = token(folder, *words, POOLKEEPER_REQUIRE_TOKEN="1")
        assert needed.returncode == 0, "calls without a token are refused already"
        here.services.tokens.revoke("ci")
        assert token(folder, *words, "--yes").returncode == 0
        assert token(folder, "create", "second", "--role", "admin").returncode == 0


def test_the_first_token_is_asked_for_at_a_terminal(folder: Path) -> None:
    command = [str(Path(sys.executable).with_name("poolkeeperd")), "token", "create", "ci", "--role", "admin"]
    with open_services(Settings(data_dir=folder), serving=True) as here:
        submit_without_a_token(here)
        for reply, code, expected in (
            ("", 1, "no token was created"),
            ("no", 1, "no token was created"),
            ("y", 0, r"\npk_[\w-]{43}\r"),
        ):
            terminal = Terminal(command, environment(folder), 200)
            try:
                terminal.wait_for(r"Create it\? \[y/N\] ")
                terminal.type(f"{reply}\n")
                assert terminal.wait_for_end() == code
                assert re.search(expected, terminal.screen)
            finally:
                terminal.close()
            assert len(here.services.tokens.list_tokens()) == (code == 0)


def test_tokens_that_expire_soon_are_named(folder: Path) -> None:
    for name, expires in (("soon", "3d"), ("sooner", "90m"), ("later", "8d")):
        assert token(folder, "create", name, "--role", "viewer", "--expires", expires).returncode == 0
    listed = token(folder, "list")
    assert len(listed.stdout.splitlines()) == 4
    advice = "create another one, and replace it in the clients"
    assert listed.stderr.splitlines() == [f"token sooner expires in 1 h: {advice}", f"token soon expires in 2 d: {advice}"]


def test_beside_a_service_whose_socket_is_elsewhere(folder: Path) -> None:
    data = folder / ("long" * 25)
    with open_services(Settings(data_dir=data), serving=True) as here:
        assert len(here.url.removeprefix("unix://")) <= SOCKET_PATH_LIMIT
        assert str(folder) not in here.url
        secret = token(data, "create", "ci", "--role", "viewer").stdout.strip()
        assert recognised(here.url, secret)


def test_a_server_that_is_not_offered_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    with open_services(Settings(data_dir=folder)):
        refused = token(folder, "list")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"is in use by another service, process {os.getpid()}," in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_after_a_service_was_killed_a_server_is_started(folder: Path) -> None:
    with service(folder) as (url, process):
        secret = token(folder, "create", "ci", "--role", "viewer").stdout.strip()
        process.kill()
        process.wait()
        assert (folder / LOCK_FILE).read_text().splitlines()[1] == url
        listed = token(folder, "list")
        assert listed.returncode == 0, listed.stderr
        assert listed.stdout.splitlines()[1].split()[1] == "ci"
        with open_services(Settings(data_dir=folder), serving=True) as again:
            assert recognised(again.url, secret)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("create", "two words", "--role", "viewer"), 1, "poolkeeperd: a token cannot be called 'two words'"),
        (("create", "ci", "--role", "requester"), 1, "poolkeeperd: a requester acts for the components of its token"),
        (("revoke", "missing"), 1, "poolkeeperd: there is no ledger in"),
        (("list",), 1, "poolkeeperd: there is no ledger in"),
        (("create", "ci", "--role", "king"), 2, "'king' is not one of 'admin', 'operator', 'requester', 'viewer'"),
        (("create", "ci", "--role", "viewer", "--expires", "soon"), 2, "'soon' is not a duration such as 90d"),
    ],
)
def test_what_cannot_be_is_said(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    refused = token(folder, *words)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert message in refused.stderr
    assert code == 2 or refused.stderr.count("\n") == 1


def test_a_wrong_setting_is_one_line(folder: Path) -> None:
    wrong = token(folder, "list", POOLKEEPER_CHUNK="many")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "POOLKEEPER_CHUNK" in wrong.stderr
