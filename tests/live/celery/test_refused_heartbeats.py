"""A worker whose token is revoked under a task: the refusal is reported at once, and the units are lost with the lease."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from poolkeeper import Client
from poolkeeper.celery.publish_hook import install

from app.bootstrap import make_services
from app.service.tokens import Tokens
from app.settings import Settings
from app.store.connection import connect
from tests.live.celery.conftest import Site, has_ended
from tests.live.celery.project import app, patient
from tests.support.backends import wait_until

IN_S = 15
LEASE_S = 3


@pytest.fixture
def tokens(site: Site, fresh: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tokens]:
    """Yield the tokens of the service. The test has one, so every call needs one."""
    plain = site.client
    with connect(site.ledger_url) as redis:
        tokens = make_services(redis, Settings()).tokens
        _, secret = tokens.create("tests", "admin", ["default"])
        with Client(plain.url, token=secret, workspace="default") as client, monkeypatch.context() as patch:
            patch.setattr(site, "client", client)
            patch.setattr(install(app), "_client", client)
            yield tokens
        for token in tokens.list_tokens():
            tokens.revoke(token.id)
    wait_until(lambda: not plain.call("GET", "/whoami")["token_needed"], "no token is needed any more")


def test_a_task_whose_heartbeats_are_refused_is_lost_when_its_lease_is_over(site: Site, tokens: Tokens, tmp_path: Path) -> None:
    file, log = tmp_path / "token", site.folder / "refused.log"
    file.write_text(tokens.create("worker", "operator", ["default"])[1])
    with site.worker("-P", "prefork", "-c", "1", name="refused", POOLKEEPER_TOKEN_FILE=str(file)):
        result = patient.apply_async(lease_s=LEASE_S)
        began = site.wait_for_note(result, "began")[0].split()
        tokens.revoke("worker")
        refused = f"task {result.id}: heartbeats are refused: "
        wait_until(lambda: refused in log.read_text("utf-8"), "the refusal is reported")
        (line,) = (line for line in log.read_text("utf-8").splitlines() if refused in line)
        assert "unknown, expired or revoked" in line
        assert re.search(r"; the lease ends in \ds$", line)
        assert not has_ended(int(began[-1])), "the lease is not over"
        wait_until(lambda: has_ended(int(began[-1])), "the units are lost and the task ends")
        assert f"task {result.id}: kill" in log.read_text("utf-8")
        file.write_text(tokens.create("another", "operator", ["default"])[1])
        again = site.wait_for_note(result, "began", 2, IN_S)[-1].split()
        assert int(again[1]) > int(began[1])
        site.go(result)
        assert result.get(timeout=IN_S) == "done"
