"""Programs of the system that tests need."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def require_program(name: str, package: str) -> str:
    """Return the path of a program; skip the test if it is absent, or fail in CI."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return path or skip_or_fail(f"{name} is not installed; Debian: {package}")


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test; in CI, where no program may be absent, fail it."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
