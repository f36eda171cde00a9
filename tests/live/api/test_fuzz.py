"""Every route under thousands of made-up requests, right ones and wrong ones: each answer is one that the document tells of.

A right request is never malformed, a wrong one never taken in, no answer is a bug, and each has the shape that is promised.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gunicorn_api import Live
from tests.support.in_process_api import a_task, an_ask
from tests.support.paths import ROOT

HERE = Path(__file__).parent


def _fill(live: Live) -> str:
    """Fill a workspace, and return its requests in the form that the hooks read."""
    live.empty()
    live.ask("POST", "/api/v1/pools", {"name": "gpus", "capacity": {"gpu": 30}})
    live.ask("PUT", "/api/v1/pools/gpus/groups/lab", {})
    live.ask("PUT", "/api/v1/pools/gpus/groups/inner", {"parent": "lab"})
    live.ask("PUT", "/api/v1/pools/gpus/policies/team", {"group": "inner"})
    asks = [an_ask(lease_s=None, queue_ttl_s=None, labels={"n": str(number)}) for number in range(40)]
    items = live.ask("POST", "/api/v1/requests/batch", {"requests": asks[:20]}).items
    items += [
        live.ask("POST", "/api/v1/tasks", a_task(f"t{n}", request=ask)).body["request"] for n, ask in enumerate(asks[20:])
    ]
    return " ".join(f"{item['id']}:{item['fence'] or 1}" for item in items)


def _fuzz(live: Live, folder: Path, *options: str, requests: str, one_in: int = 1) -> str:
    """Run schemathesis, which sends one in so many cases of its coverage phase; return its output if it finds nothing."""
    command = (sys.executable, "-P", "-c", "from schemathesis.cli import schemathesis; schemathesis()")
    document = f"{live.url}/api/v1/openapi.json"
    defaults = ("--generation-deterministic", "--continue-on-failure", "--no-color", "--workers", "1")
    hooks = {"SCHEMATHESIS_HOOKS": "tests.live.api.fuzz_hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--config-file", str(HERE / "fuzz.toml"), "run", document, *defaults, *options],
        env={**os.environ, **hooks, "FUZZED": requests, "FUZZ_ONE_IN": str(one_in)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert [line for line in live.lines() if line["level"] in ("error", "critical")] == []
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_tokens(live: Live, tmp_path: Path) -> None:
    text = _fuzz(live, tmp_path, "--max-examples", "4", requests=_fill(live))
    assert "45 selected / 45 total" in text
    assert "Tested: 45" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_with_the_token_of_an_operator(live: Live, tmp_path: Path) -> None:
    current = _fill(live)
    secret = live.token("operator")
    try:
        options = ("--header", f"Authorization: Bearer {secret}", "--phases", "examples,coverage")
        assert "Tested: 45" in _fuzz(live, tmp_path, *options, requests=current, one_in=8)
    finally:
        live.empty()
