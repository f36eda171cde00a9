"""Programs of the system that tests need."""

from __future__ import annotations

import os
import shutil

import pytest


def require_program(name: str, package: str) -> str:
    """Return the path of a program. If it is absent, skip the test; in CI, where no program may be absent, fail it."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed; Debian: {package}")
    return path
