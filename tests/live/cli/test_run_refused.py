"""`poolkeeper run` when the service answers and refuses: its token is revoked or has expired, and perhaps there is another."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from app.domain.clock import ManualClock
from app.domain.specs import RequestSpec
from app.service.tokens import Tokens
from app.store.connection import RedisClient, connect
from app.store.ledger import Ledger
from app.store.tokens import TokenStore
from tests.support.backends import wait_until
from tests.support.cli_program import Program
from tests.support.cli_runs import BEGIN, WORK, RunLab
from tests.support.gunicorn_api import Live, live_api
from tests.support.poolkeeperd import living

WORKSPACE = "default"
LEASE_S = 4
ASKED = ("--component", "team", "--gpu", "4", "--lease", str(LEASE_S))
STAYS = BEGIN + "trap 'exit 5' USR2\n" + WORK
TICKS = BEGIN + "trap '' TERM\nexec 9<> <(:)\nwhile :; do echo $EPOCHREALTIME >>\"$LOG\"; read -t 0.02 -u 9; done\n"
"""Writes the time as long as it lives, and does not heed SIGTERM."""


@dataclass(frozen=True)
class TokenLab:
    """A lab on a service that needs tokens, and the file in which the client of the lab keeps its token."""

    lab: RunLab
    tokens: Tokens
    ledger: Ledger

    def give_token(self, name: str, expires_s: int | None = None) -> None:
        """Make a token for the component of the lab, and keep it as `poolkeeper login` does."""
        secret = self.tokens.create(name, "requester", [WORKSPACE], ["team"], expires_s=expires_s)[1]
        path = self.lab.folder / "config" / "poolkeeper" / "config.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"url": self.lab.program.url, "token": secret}))
        os.replace(beside, path)

    def submit_for_all(self) -> str:
        """Return the id of a request for all units."""
        return self.ledger.submit(WORKSPACE, RequestSpec(component="team", resources={"gpu": 4}, lease_s=None)).id

    def expire_waiters(self) -> None:
        """Clean up as if a minute had passed in which no poll was accepted."""
        with connect(self.lab.redis_url) as client:
            in_a_minute = ManualClock(int(time.time() * 1000) + 61_000)
            assert Ledger(client, in_a_minute).clean_up(WORKSPACE).expired_waiters == 1

    def grant_time_s(self, request: str) -> float:
        """Return when the request was granted, once the leases that are over have lapsed."""

        def is_granted() -> bool:
            self.ledger.clean_up(WORKSPACE)
            return self.ledger.get_request(WORKSPACE, request).status == "allocated"

        wait_until(is_granted, "the lease of the holder lapses, and the waiter is granted")
        return (self.ledger.get_request(WORKSPACE, request).granted_ms or 0) / 1000


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_api(tmp_path_factory.mktemp("live")) as api:
        yield api


@pytest.fixture
def redis(live: Live) -> Iterator[RedisClient]:
    live.empty()
    with connect(live.redis_url) as client:
        yield client


@pytest.fixture
def refusing(live: Live, redis: RedisClient, tmp_path: Path) -> TokenLab:
    lab = RunLab(Program(live.url, tmp_path, WORKSPACE), live.redis_url, tmp_path).create_pool()
    token_lab = TokenLab(lab, Tokens(TokenStore(redis)), Ledger(redis))
    token_lab.tokens.create("admin", "admin", [WORKSPACE])
    wait_until(lambda: live.ask("GET", "/api/v1/pools").status == 401, "it is known that there is a token")
    return token_lab


def test_a_command_never_works_on_units_of_others_after_its_token_expired(refusing: TokenLab) -> None:
    lab = refusing.lab
    refusing.give_token("nightly", expires_s=2)
    with lab.run(*ASKED, script=TICKS) as run:
        start = lab.wait_for_start()
        waiter = refusing.submit_for_all()
        run.wait_for_message("this token is unknown, expired or revoked")
        granted_s = refusing.grant_time_s(waiter)
        run.wait_for_end(ExitCode.LOST)
        assert living({start.pid: ""}) == {}
    assert max(float(line) for line in lab.lines()[1:]) < granted_s
    assert re.search(r"heartbeats are refused: this token is .* the lease ends in [1-4]s", run.err)
    assert "the lease is about to end, so the command is stopped" in run.err
    assert "the lease is over, and heartbeats are refused: this token is unknown" in run.err
    assert refusing.ledger.get_request(WORKSPACE, start.request).status == "expired"


def test_a_command_that_is_to_go_on_without_its_units_does_so_when_the_lease_is_over(refusing: TokenLab) -> None:
    lab = refusing.lab
    refusing.give_token("nightly")
    with lab.run(*ASKED, "--on-lost", "keep", script=STAYS) as run:
        start = lab.wait_for_start()
        refusing.tokens.revoke("nightly")
        run.wait_for_message("the units are lost, and the command goes on without them")
        os.kill(start.pid, signal.SIGUSR2)
        run.wait_for_end(5)


def test_a_replaced_token_keeps_the_lease_of_a_run(refusing: TokenLab) -> None:
    lab = refusing.lab
    refusing.give_token("nightly")
    with lab.run(*ASKED, script=STAYS) as run:
        start = lab.wait_for_start()
        refusing.tokens.revoke("nightly")
        run.wait_for_message("heartbeats are refused")
        refusing.give_token("nightly-2")
        run.wait_for_message("the service accepts heartbeats again, and the lease was kept")
        lease_ms = refusing.ledger.get_request(WORKSPACE, start.request).lease_expires_ms or 0
        wait_until(lambda: time.time() * 1000 > lease_ms, "the time of a lease passes")
        refusing.ledger.clean_up(WORKSPACE)
        os.kill(start.pid, signal.SIGUSR2)
        run.wait_for_end(5)
    assert refusing.ledger.get_request(WORKSPACE, start.request).status == "released"


def test_a_run_whose_polls_were_refused_until_its_request_expired_waits_on(refusing: TokenLab) -> None:
    lab = refusing.lab
    holder = refusing.submit_for_all()
    refusing.give_token("nightly")
    with lab.run(*ASKED, script=BEGIN + "exit 5") as run:
        run.wait_for_message("waiting in gpus")
        refusing.tokens.revoke("nightly")
        run.wait_for_message("this token is unknown, expired or revoked; trying again")
        refusing.expire_waiters()
        refusing.give_token("nightly-2")
        run.wait_for_message("submitted again as")
        refusing.ledger.drop(WORKSPACE, holder)
        run.wait_for_end(5)


def test_a_run_that_died_while_it_waited_leaves_no_request_that_is_granted(refusing: TokenLab) -> None:
    lab = refusing.lab
    holder = refusing.submit_for_all()
    refusing.give_token("nightly")
    with lab.run(*ASKED, script=BEGIN) as run:
        run.wait_for_message("waiting in gpus")
        run.send_signal(signal.SIGKILL)
        run.wait_for_end(-signal.SIGKILL)
    refusing.expire_waiters()
    refusing.ledger.drop(WORKSPACE, holder)
    assert lab.lines() == []
    assert refusing.ledger.get_pool(WORKSPACE, "gpus").active_count == 0
