"""Between `run` and its command: a process that starts the command and leaves nothing of it behind, whoever dies.

It is run as a script, by its path and with nothing but the standard library, so that it starts at once and no folder of the
user can get in between. The command has a process group of its own. A signal is one byte from `run`; a zero, or the end of the
connection because `run` has died, means to kill all there is. Reports go back a line each: `started PID`, `unstartable ERRNO`,
`stopped SIGNAL`, `ended CODE` (negative for a signal) and, when nothing lives any more, `gone`.

All there is: the group and, where the system has child subreapers (Linux), every other process that comes of the command, such
as a daemon that left the group. Elsewhere it is the group alone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress

KILL_ALL = 0
"""What stands in place of a signal."""
UNHEEDED = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGTSTP", "SIGTTIN", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD")
"""Signals that are not for us; `run` hears of its own."""
NEEDED = ("SIGPIPE", "SIGCHLD")
"""Those of them that we hear of, or must not die of, even where they were ignored: without SIGCHLD no child's end is told."""
LOOK_S = 0.05
"""How often to look for the end of a group whose processes are not our children."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def system_call(option: int, value: int) -> bool:
    """One prctl of Linux; False where there is none."""
    if sys.platform != "linux":
        return False
    import ctypes

    done: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    return done == 0


def adopt_orphans() -> bool:
    """From now on whatever our descendants leave behind becomes our child; False where that cannot be had."""
    return system_call(PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Our child processes, as far as the system shows them."""
    return [int(name) for name in _listed("/proc") if name.isdigit() and _parent(name) == os.getpid()]


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def send(sign: int, group: int, *, ended: bool) -> None:
    """Signal the group; once its leader has ended, also what is left outside of it."""
    with suppress(OSError):
        os.killpg(group, sign)
    if ended or sign == signal.SIGKILL:
        for child in children():
            with suppress(OSError):
                os.kill(child, sign)


def end_all(group: int) -> None:
    """Kill the group and all our children, and theirs; returns when there are none."""
    while True:
        send(signal.SIGKILL, group, ended=True)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Guard:
    """The command from its start to the end of the last process of it."""

    def __init__(self, control: socket.socket, words: list[str], *, foreground: bool) -> None:
        self._control, self._words, self._foreground = control, words, foreground
        self._run = os.getppid()
        self._wake = _wakes_for_signals()
        self._leader = 0
        self._ended = self._doomed = self._deserted = False
        self._adopts = adopt_orphans()
        system_call(PR_SET_PDEATHSIG, signal.SIGUSR2)  # which does no more than wake us; the connection says the same

    def __call__(self) -> None:
        """Returns when all is over."""
        self._leader, errno = start(self._words, foreground=self._foreground)
        self._tell(f"unstartable {errno}" if errno else f"started {self._leader}")
        if errno:
            return
        while not self._is_over():
            self._wait()
            self._take_orders()
            self._reap()
            if self._doomed:
                send(signal.SIGKILL, self._leader, ended=True)
        self._tell("gone")

    def _is_over(self) -> bool:
        if not self._ended or _has_children():
            return False
        if self._adopts:
            return True
        try:
            os.killpg(self._leader, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _wait(self) -> None:
        listened: list[int | socket.socket] = [self._wake] if self._deserted else [self._wake, self._control]
        select.select(listened, [], [], LOOK_S if self._ended and not self._adopts else None)
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _take_orders(self) -> None:
        orders: bytes | None
        try:
            orders = b"" if self._deserted else self._control.recv(4096)
        except BlockingIOError:
            orders = b"" if os.getppid() != self._run else None
        except OSError:
            orders = b""
        if orders == b"":
            self._deserted = self._doomed = True
        for order in orders or b"":
            self._carry_out(order)

    def _carry_out(self, order: int) -> None:
        if order == KILL_ALL:
            self._doomed = True
            return
        send(order, self._leader, ended=self._ended)
        if order == signal.SIGTERM:  # what is stopped could not heed it
            send(signal.SIGCONT, self._leader, ended=self._ended)

    def _reap(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if child == 0:
                return
            if child != self._leader:
                continue
            if os.WIFSTOPPED(status):
                self._tell(f"stopped {os.WSTOPSIG(status)}")
            else:
                self._ended = True
                self._tell(f"ended {os.waitstatus_to_exitcode(status)}")

    def _tell(self, report: str) -> None:
        with suppress(OSError):  # nobody is there to hear it
            self._control.sendall(f"{report}\n".encode())


def start(words: list[str], *, foreground: bool) -> tuple[int, int]:
    """The command's process and 0, once it runs; else what the error was."""
    heard, tells = os.pipe()
    guard, child = os.getpid(), os.fork()
    if child == 0:
        try:
            _become(words, guard, foreground=foreground)
        except OSError as error:
            os.write(tells, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(tells)
    with open(heard, "rb") as answer:  # which ends when the command has taken the child's place
        errno = int(answer.read() or 0)
    return child, errno


def _become(words: list[str], guard: int, *, foreground: bool) -> None:
    os.setpgid(0, 0)
    system_call(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before that was asked for
        os._exit(127)
    if foreground:
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpid())
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and a command would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU, signal.SIGTTIN})  # `run` has blocked them
    os.execvp(words[0], words)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _wakes_for_signals() -> int:
    """The end of a pipe that can be read when a signal has come. Handlers, unlike what is ignored, do not outlast an exec."""
    wake, wakes = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for name in UNHEEDED:
        sign = getattr(signal, name)
        if name in NEEDED or signal.getsignal(sign) != signal.SIG_IGN:
            signal.signal(sign, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return wake


def main() -> None:
    """`guard.py FILE FOREGROUND WORD…`: the connection's file number, whether to give the command the terminal, the command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    control.setblocking(False)
    Guard(control, sys.argv[3:], foreground=sys.argv[2] == "1")()


if __name__ == "__main__":
    main()
