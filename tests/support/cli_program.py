"""`poolkeeper` as it is run: many small runs within this process, and real processes, also on a terminal of their own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from poolkeeper.cli.main import main

PROGRAM = Path(sys.executable).with_name("poolkeeper")
FOR_TERMINALS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
"""The variables of the calling shell that would change the drawing."""


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the output, parsed as JSON."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """Return the only line of the output."""
        assert self.out.count("\n") == 1, self
        return self.out.rstrip("\n")


@dataclass(frozen=True)
class Program:
    """The program with an address and a workspace, and no settings but these."""

    url: str
    folder: Path
    workspace: str

    def environment(self, **more: str) -> dict[str, str]:
        """Return all variables of the program."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("POOLKEEPER_", *FOR_TERMINALS))}
        own = {"URL": self.url, "WORKSPACE": self.workspace}
        clean |= {"XDG_CONFIG_HOME": str(self.folder / "config"), "TERM": "xterm-256color"}
        return clean | {f"POOLKEEPER_{name}": value for name, value in own.items()} | more

    def __call__(self, *words: str, ends: int = 0, feed: str | None = None, **more: str) -> Result:
        """Run the program in this process, and check its exit code."""
        blank = {name: None for name in os.environ if name.startswith("POOLKEEPER_")}
        output = {**blank, **self.environment(**({"POOLKEEPER_TRACEBACK": "1"} | more))}
        result = CliRunner().invoke(main, list(words), input=feed, env=output, prog_name="poolkeeper")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        ran = Result(result.exit_code, result.stdout, result.stderr)
        assert ran.code == ends, ran
        return ran

    def process(self, *words: str, ends: int = 0, feed: str = "", **more: str) -> Result:
        """Run the program in a process of its own."""
        done = subprocess.run(
            [PROGRAM, *words], env=self.environment(**more), input=feed, capture_output=True, text=True, timeout=30, check=False
        )
        ran = Result(done.returncode, done.stdout, done.stderr)
        assert ran.code == ends, ran
        return ran

    @contextmanager
    def start(self, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """Run a process for as long as the context."""
        process = subprocess.Popen(
            [PROGRAM, *words], env=self.environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=20)

    @contextmanager
    def on_a_terminal(self, *words: str, width: int = 200, **more: str) -> Iterator[Terminal]:
        """Run a process with a terminal of its own."""
        terminal = Terminal([str(PROGRAM), *words], self.environment(**more), width)
        try:
            yield terminal
        finally:
            terminal.close()


class Terminal:
    """A program on a terminal, with everything that it has drawn."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], width: int) -> None:
        self.screen = ""
        self._inside, outside = pty.openpty()
        fcntl.ioctl(outside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        self.process = subprocess.Popen(
            command, env=environment, stdin=outside, stdout=outside, stderr=outside, start_new_session=True, close_fds=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(outside)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._inside, text.encode())

    def resize(self, width: int, height: int) -> None:
        """Change the size of the window, of which the program is told by a signal."""
        fcntl.ioctl(self._inside, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def wait_for(self, pattern: str, within_s: float = 20) -> str:
        """Read until the pattern is drawn, and return the screen."""
        until = time.monotonic() + within_s
        while not re.search(pattern, self.screen):
            assert self._read(until), f"{pattern!r} was not seen in {self.screen!r}"
        return self.screen

    def wait_for_end(self, within_s: float = 20) -> int:
        """Read until the end, and return the exit code."""
        until = time.monotonic() + within_s
        while self._read(until):
            pass
        try:
            return self.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"it has not ended; seen was {self.screen!r}") from late

    def interrupt(self, within_s: float = 20) -> int:
        """Send Ctrl-C and return the exit code; repeat it if it came just before a system call, which it does not end."""
        until = time.monotonic() + within_s
        while self.process.poll() is None and time.monotonic() < until:
            self.type("\x03")
            while self._read(time.monotonic() + 5):  # a second Ctrl-C sooner could come during the end of the program
                pass
        return self.process.wait(0.1)

    def close(self) -> None:
        """Close the terminal and end the process, whatever its state."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._inside)

    def _read(self, until: float) -> bool:
        """Read once; return False at the end or at the time limit."""
        ready, _, _ = select.select([self._inside], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            read = os.read(self._inside, 65536)
        except OSError:  # the other end is closed
            return False
        self.screen += read.decode()
        return bool(read)
