"""The guard: a process between `run` and the command. It starts the command. When `run` or the command ends, it kills all
processes that are left.

The guard runs as a script, by its path and with the standard library alone. So it starts fast and imports no folder of the
user. The command has a process group of its own. Each byte from `run` is the number of a signal for the command. A zero byte is
the order to kill everything; so is the end of the connection, because then `run` has died. The guard reports one line each:
`started PID`, `unstartable ERRNO`, `stopped SIGNAL`, `ended CODE` (negative for a signal) and, when no process is left, `gone`.

Everything means the process group and, on Linux (child subreapers), every other descendant of the command, such as a daemon
that left the group. On other systems it is the process group alone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress

KILL_ALL = 0
"""The byte with the order to kill everything. Any other byte is the number of a signal."""
IGNORED_SIGNALS = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGTSTP", "SIGTTIN", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD")
"""Signals that the guard ignores: a terminal sends them to `run` as well, and `run` decides."""
REQUIRED_SIGNALS = ("SIGPIPE", "SIGCHLD")
"""The signals that get a handler even if they were ignored at the start. Without SIGCHLD the system reports no end of a
child."""
POLL_S = 0.05
"""The seconds between two checks of a process group whose processes are no children of the guard."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option: int, value: int) -> bool:
    """Call `prctl` of Linux. Return False if it fails, or on another system."""
    if sys.platform != "linux":
        return False
    import ctypes

    result: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    return result == 0


def adopt_orphans() -> bool:
    """Make this process the parent of every orphaned descendant. Return False if the system cannot do that."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the child processes of this process, as far as /proc shows them."""
    return [int(name) for name in _list_folder("/proc") if name.isdigit() and _parent_pid(name) == os.getpid()]


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _parent_pid(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def signal_group(signum: int, group: int, *, leader_ended: bool) -> None:
    """Send a signal to the group. After the end of its leader, or with SIGKILL, send it to all other children, too."""
    with suppress(OSError):
        os.killpg(group, signum)
    if leader_ended or signum == signal.SIGKILL:
        for child in children():
            with suppress(OSError):
                os.kill(child, signum)


def kill_all(group: int) -> None:
    """Kill the group and all descendants of this process. Return when none is left."""
    while True:
        signal_group(signal.SIGKILL, group, leader_ended=True)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Guard:
    """The supervisor of the command, from its start to the end of its last process."""

    def __init__(self, control: socket.socket, argv: list[str], *, foreground: bool) -> None:
        self._control, self._argv, self._foreground = control, argv, foreground
        self._parent_pid = os.getppid()
        self._signal_pipe = _open_signal_pipe()
        self._leader = 0
        self._leader_ended = self._is_killing = self._is_disconnected = False
        self._adopts_orphans = adopt_orphans()
        prctl(PR_SET_PDEATHSIG, signal.SIGUSR2)  # wakes the guard, which then finds the connection closed

    def __call__(self) -> None:
        """Start the command. Return when its last process has ended."""
        self._leader, errno = start_command(self._argv, foreground=self._foreground)
        self._report(f"unstartable {errno}" if errno else f"started {self._leader}")
        if errno:
            return
        while not self._is_over():
            self._wait()
            self._read_orders()
            self._reap()
            if self._is_killing:
                signal_group(signal.SIGKILL, self._leader, leader_ended=True)
        self._report("gone")

    def _is_over(self) -> bool:
        if not self._leader_ended or _has_children():
            return False
        if self._adopts_orphans:
            return True
        try:
            os.killpg(self._leader, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _wait(self) -> None:
        inputs: list[int | socket.socket] = [self._signal_pipe] if self._is_disconnected else [self._signal_pipe, self._control]
        select.select(inputs, [], [], POLL_S if self._leader_ended and not self._adopts_orphans else None)
        with suppress(BlockingIOError):
            os.read(self._signal_pipe, 4096)

    def _read_orders(self) -> None:
        orders: bytes | None
        try:
            orders = b"" if self._is_disconnected else self._control.recv(4096)
        except BlockingIOError:
            orders = b"" if os.getppid() != self._parent_pid else None
        except OSError:
            orders = b""
        if orders == b"":
            self._is_disconnected = self._is_killing = True
        for order in orders or b"":
            self._carry_out(order)

    def _carry_out(self, order: int) -> None:
        if order == KILL_ALL:
            self._is_killing = True
            return
        signal_group(order, self._leader, leader_ended=self._leader_ended)
        if order == signal.SIGTERM:  # a stopped process handles it only after SIGCONT
            signal_group(signal.SIGCONT, self._leader, leader_ended=self._leader_ended)

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
                self._report(f"stopped {os.WSTOPSIG(status)}")
            else:
                self._leader_ended = True
                self._report(f"ended {os.waitstatus_to_exitcode(status)}")

    def _report(self, report: str) -> None:
        with suppress(OSError):  # `run` has died
            self._control.sendall(f"{report}\n".encode())


def start_command(argv: list[str], *, foreground: bool) -> tuple[int, int]:
    """Start the command. Return its process id and 0 once it runs; else an errno."""
    read_end, write_end = os.pipe()
    guard_pid, child = os.getpid(), os.fork()
    if child == 0:
        try:
            _exec_command(argv, guard_pid, foreground=foreground)
        except OSError as error:
            os.write(write_end, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(write_end)
    with open(read_end, "rb") as pipe:  # exec closes the pipe when it replaces the child by the command
        errno = int(pipe.read() or 0)
    return child, errno


def _exec_command(argv: list[str], guard_pid: int, *, foreground: bool) -> None:
    os.setpgid(0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard_pid:  # the guard died before prctl asked for a signal at its death
        os._exit(127)
    if foreground:
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpid())
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and the command would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU, signal.SIGTTIN})  # `run` has blocked them
    os.execvp(argv[0], argv)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _open_signal_pipe() -> int:
    """Return the read end of a pipe that becomes readable at a signal. An exec resets handlers, but not ignored signals."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for name in IGNORED_SIGNALS:
        signum = getattr(signal, name)
        if name in REQUIRED_SIGNALS or signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return read_end


def main() -> None:
    """Run `guard.py FILE FOREGROUND WORD…`: file number of the connection, 1 if the command gets the terminal, the command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    control.setblocking(False)
    Guard(control, sys.argv[3:], foreground=sys.argv[2] == "1")()


if __name__ == "__main__":
    main()
