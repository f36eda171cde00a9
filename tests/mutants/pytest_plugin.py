"""A pytest plugin for runs on a copy of the tree: the packages of the project are imported from the copy."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

PACKAGES = ("app", "workers", "poolkeeper", "tests")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run if a package of the project would be imported from outside of the copy."""
    for package in PACKAGES:
        spec = find_spec(package)
        origin = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), ""))
        if not origin or not origin.startswith(f"{config.rootpath}/"):
            raise pytest.UsageError(f"{package} would be imported from {origin}, and not from {config.rootpath}")
