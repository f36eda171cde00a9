"""The Redis user of docs/operations/deploy-several-machines.md: it may do what the service does, and reads no other key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis.exceptions as errors

from app.store.connection import connect
from app.store.keys import key
from tests.support.backends import free_port, require, serve, wait_until, wait_until_ready
from tests.support.doc_pages import Page
from tests.support.paths import ROOT
from tests.support.poolkeeperd import up

PAGE = Page(ROOT / "docs" / "operations" / "deploy-several-machines.md")


def test_the_whole_service_runs_as_this_user(tmp_path: Path) -> None:
    require("redis")
    rule = re.search(r"^user poolkeeper .*$", PAGE.text, re.M)
    assert rule
    users = tmp_path / "users.acl"
    users.write_text(f"user default off\nuser watcher on >secret +@all\n{rule[0].replace('PASSWORD', 'secret')}\n", "utf-8")
    port = free_port()
    url = f"redis://poolkeeper:secret@127.0.0.1:{port}/0"
    with serve(tmp_path, "--port", str(port), "--aclfile", str(users)):
        wait_until_ready(url)
        with up(tmp_path, POOLKEEPER_REDIS_URL=url, POOLKEEPER_CLEANUP_INTERVAL_S="0.2") as service, connect(url) as client:
            for command in (("KEYS", "*"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("GET", "other")):
                with pytest.raises(errors.NoPermissionError):
                    client.execute_command(*command)
            asked = {"component": "vision", "resources": {"gpu": 8}}
            granted = service.ask("POST", "/requests", asked).body
            waiter = service.ask("POST", "/requests", asked).body
            client.zadd(key("ended", "default"), {"long-ago": 1})
            wait_until(lambda: not client.exists(key("ended", "default")), "beat has ticked, and the worker cleaned up")
            service.ask("POST", f"/requests/{granted['id']}/release", {"fence": granted["fence"]})
            polled = service.ask("GET", f"/requests/{waiter['id']}?wait_s=20&status=queued")
            assert polled.body["status"] == "allocated"
        with connect(url.replace("poolkeeper", "watcher")) as watcher:
            denied = {entry["object"] for entry in watcher.acl_log()}  # those of scripts, too
        assert denied == {"keys", "flushall", "config|get", "other"}, "no command but those above is denied"
        refused = [
            line for log in (tmp_path / "data" / "log").iterdir() for line in log.read_text().splitlines() if "NOPERM" in line
        ]
        assert refused == []
