"""The wheels that docs/operations/install.md builds: complete, and the client's without anything of the server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT


@pytest.fixture(scope="module", params=[".", "client"])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of each distribution in turn."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT / request.param, check=True, capture_output=True, timeout=60)
    return next(folder.glob("*.whl"))


def test_a_wheel_has_what_its_page_promises(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        names = set(packed.namelist())
        metadata = next(packed.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    packages = {name.partition("/")[0] for name in names if not name.partition("/")[0].endswith(".dist-info")}
    needed = {match[1].lower() for match in re.finditer(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", metadata, re.M)}
    if wheel.name.startswith("poolkeeper_server-"):
        assert packages == {"app", "workers"}
        samples = {
            f"app/{path.relative_to(ROOT)}" for path in (ROOT / "config").rglob("*") if path.suffix in (".service", ".conf")
        }
        assert len(samples) > 2
        assert samples <= names
        assert {"celery", "flask", "redis"} <= needed
    else:
        assert (packages, needed) == ({"poolkeeper"}, {"click", "pyyaml", "rich"})


def required(distribution: str) -> set[str]:
    """Return the distributions that pip installs with one, itself included."""
    todo, result = [Requirement(distribution)], set()
    while todo:
        requirement = todo.pop()
        if (key := (canonicalize_name(requirement.name), *sorted(requirement.extras))) in result:
            continue
        result.add(key)
        extras = [*requirement.extras, ""]
        todo += [
            needed
            for needed in map(Requirement, requires(requirement.name) or [])
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return {key[0] for key in result}


def test_the_service_starts_without_the_packages_of_developers() -> None:
    installed = required("poolkeeper-server")
    assert "celery" in installed
    absent = [
        module
        for module, names in packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & {*installed, "poolkeeper"}
    ]
    assert "pytest" in absent
    hide = f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\n"  # None in sys.modules: the import fails
    start = "from app.cli.preloaded_process import preload\npreload()\n"
    environment = {**os.environ, "POOLKEEPER_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-c", hide + start], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
