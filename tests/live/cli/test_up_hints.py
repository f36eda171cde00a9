"""The commands that `poolkeeperd up` proposes when it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.backends import require
from tests.support.poolkeeperd import up


def test_the_proposed_commands_run(tmp_path: Path) -> None:
    require("embedded")
    with up(tmp_path) as running:
        lines = [line.strip() for line in running.said[running.said.index("Try, in another terminal:") + 1 : -1]]
        assert lines[0] == f"export POOLKEEPER_URL=http://127.0.0.1:{running.port}"
        assert len(lines) == 4, "the address, as it is not the usual one, and three commands"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
        variables |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_CONFIG_HOME": "/nonexistent"}
        done = subprocess.run(
            ["bash", "-ec", "\n".join(lines)], env=variables, capture_output=True, text=True, timeout=60, check=True
        )
    assert "the shared GPUs" in done.stdout
    assert "allocated in gpus" in done.stdout
