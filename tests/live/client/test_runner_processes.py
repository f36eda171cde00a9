"""Parts of `poolkeeper run` whose subject is a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.backends import wait_until


def test_run_starts_without_what_it_does_not_need() -> None:
    program = (
        "import sys\nfrom poolkeeper.cli.main import main\n"
        "try: main(['run', '--component', 'team', '--gpu', '1', '--url', 'http://127.0.0.1:1', '--', 'true'])\n"
        "except SystemExit as ended: assert ended.code == 5\n"
        "print(*sorted({'rich', 'yaml', 'asyncio', 'logging', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "\n"


def test_a_guard_without_a_parent_ends(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom poolkeeper.runner.guarded_process import GuardedProcess\n"
        "command = GuardedProcess(['sleep', '307'], dict(os.environ), foreground=False)\n"
        "print(command.group, flush=True)\nos._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    wait_until(lambda: not Path(f"/proc/{done.stdout.strip()}").exists(), "the command has ended")
