"""The wheel contains the dashboard's pages, their files and the licences of third-party files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from tests.support.paths import ROOT


def test_the_wheel_has_every_file_of_the_dashboard(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(ZipFile(wheel).namelist())
    folders = (ROOT / "app/dashboard" / part for part in ("assets", "templates"))
    there = {str(file.relative_to(ROOT)) for folder in folders for file in folder.iterdir()}
    assert len(there) > 15
    assert there <= packed
