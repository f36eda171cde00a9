"""The wheels that docs/operations/install.md builds: complete, and the client's without anything of the server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

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
