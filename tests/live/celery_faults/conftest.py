"""One installation for all proofs; each begins with everything up, no worker of the app, and nothing kept."""

from __future__ import annotations

import gc
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack

import pytest

from tests.live.celery_faults.installation import SERVERS, SERVICE, Installation
from tests.support.backends import require

TOKEN = re.compile(r"pk_[A-Za-z0-9_-]{8,}")
"""One, also if it was shortened."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mask tokens in the reports of failures, as pytest prints the arguments of functions."""
    report = yield
    if TOKEN.search(text := str(report.longrepr)):
        report.longrepr = TOKEN.sub("pk_…", text)
    return report


@pytest.fixture(scope="module", autouse=True)
def without_results_left() -> Iterator[None]:
    """Delete the results of the module's tasks with it: a result that ends during another test uses the broker."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Yield the whole installation without workers of the app."""
    require("redis")
    with ExitStack() as stack:
        made = Installation(tmp_path_factory.mktemp("proofs"), stack)
        made.start_all()
        yield made


@pytest.fixture
def here(installation: Installation) -> Iterator[Installation]:
    """Yield the installation, and remove the remains of a failed test."""
    yield installation
    installation.end_workers()
    down = [name for name in (*SERVERS, *SERVICE) if not installation.children[name].alive]
    installation.start(*down)
    if installation.list_outbox_entries():
        installation.kill(*SERVICE)
        installation.clear()
        installation.start(*SERVICE)
        installation.set_up()
    installation.server("broker").flushall()
