"""Commands are called by name and answer by name, on every backend; what goes wrong says where, or whose fault it is."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.cluster import RedisCluster
from redis.exceptions import BusyLoadingError, ResponseError
from redis.exceptions import ConnectionError as Gone
from redis.exceptions import TimeoutError as Late
from redis.retry import Retry

from app.domain.errors import StoreUnavailable
from app.domain.states import RequestState
from app.store.connection import RedisClient
from app.store.lua_linker import load_commands
from app.store.scripts import ScriptBug, ScriptReply, Scripts
from tests.support.programs import require_program

TREE = {
    "lib/counters.lua": """\
-- Count, and fail.
-- @writes meta

function counters.next()
  return redis.call('HINCRBY', keys.meta(), 'seq', 1)
end

function counters.break_down()
  local nothing = nil
  return nothing.at_all
end

function counters.confuse()
  return redis.call('ZCARD', keys.meta())
end
""",
    "count.lua": "-- Count.\n-- @use counters\n-- @reply counted seq\n\nreturn reply.counted(counters.next())\n",
    "echo.lua": "-- Say it again.\n-- @args a b\n-- @reply said a b\n\nreturn reply.said(args.a, args.b)\n",
    "values.lua": """\
-- Answer all there is.
-- @reply valued none no yes large larger small table last

return reply.valued(nil, false, true, const.MAX_AMOUNT, const.BORROWING_STEP, -7, {'x', {'y', 3}, {}}, 'é')
""",
    "fail.lua": """\
-- Fail one way or the other.
-- @use counters
-- @args how
-- @reply done

counters.next()
if args.how == 'library' then counters.break_down() end
if args.how == 'here' then error('on purpose') end
if args.how == 'type' then counters.confuse() end
if args.how == 'odd' then return {'odd'} end
if args.how == 'short' then return {'done', 'more'} end
if args.how == 'flat' then return 1 end
return reply.done()
""",
    "spin.lua": "-- Spin.\n-- @reply done\n\nwhile redis.call('TIME') do end\nreturn reply.done()\n",
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the commands of a small folder."""
    folder = tmp_path_factory.mktemp("lua")
    (folder / "lib").mkdir()
    for name, text in TREE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return dict(load_commands(folder))


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """Yield the socket of a redis-server in the folder, for as long as the context."""
    server, path = require_program("redis-server", "redis-server"), str(folder / "redis.sock")
    command = [server, "--save", "", "--dir", str(folder), "--unixsocket", path, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with Redis(unix_socket_path=path, retry=Retry(ConstantBackoff(0.02), 500)) as client:
            client.ping()
        yield path
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the socket of a redis-server."""
    with served(tmp_path_factory.mktemp("s"), "--port", "0") as path:
        yield path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of a cluster of one node."""
    with socket.socket() as port_socket, socket.socket() as other:  # both at once, so that they differ, and both are free
        for free in (port_socket, other):
            free.bind(("127.0.0.1", 0))
        port, bus = port_socket.getsockname()[1], other.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", str(bus)]
    with served(tmp_path_factory.mktemp("c"), *options) as path, Redis(unix_socket_path=path) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")):
            time.sleep(0.02)
        yield port


@pytest.fixture(params=["fake", "fake, decoding", "redis", "redis, decoding", "cluster"])
def client(request: pytest.FixtureRequest) -> Iterator[RedisClient]:
    """Yield an empty backend that knows no script."""
    kind, _, decoding = request.param.partition(", ")
    made: RedisClient
    if kind == "fake":
        made = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=bool(decoding))
    elif kind == "redis":
        made = Redis(unix_socket_path=request.getfixturevalue("server"), decode_responses=bool(decoding))
    else:
        made = RedisCluster(host="127.0.0.1", port=request.getfixturevalue("cluster"))
    made.flushall()
    made.script_flush()
    yield made
    made.close()


@pytest.fixture
def scripts(client: RedisClient, commands: dict[str, Any]) -> Scripts:
    """Return the commands on the backend."""
    return Scripts(client, commands)


def test_a_command_is_called_by_name_and_answers_by_name(scripts: Scripts) -> None:
    assert scripts.call("count", "w") == ScriptReply("counted", {"seq": "1"})
    assert scripts.call("count", "w") == ("counted", {"seq": "2"})
    assert scripts.call("echo", "w", b="second", a="first").fields == {"a": "first", "b": "second"}


def test_workspaces_do_not_meet(scripts: Scripts, client: RedisClient) -> None:
    scripts.call("count", "w")
    assert scripts.call("count", "v").fields == {"seq": "1"}
    assert sorted(key.decode() if isinstance(key, bytes) else key for key in client.keys("*")) == ["pk:{v}:meta", "pk:{w}:meta"]


def test_every_value_comes_back_whole(scripts: Scripts) -> None:
    large = ["9007199254740991", "9007199254740992", "-7"]
    reply = scripts.call("values", "w")
    assert list(reply.fields) == ["none", "no", "yes", "large", "larger", "small", "table", "last"]
    assert list(reply.fields.values()) == ["", "", "1", *large, ["x", ["y", "3"], []], "é"]


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("é", "é"),
        (b"x", "x"),
        (None, ""),
        (True, "1"),
        (False, "0"),
        (2**53 - 1, "9007199254740991"),
        (RequestState.QUEUED, "queued"),
    ],
)
def test_arguments_arrive_as_text(scripts: Scripts, argument: Any, text: str) -> None:
    assert scripts.call("echo", "w", a=argument, b="").fields["a"] == text


@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}, {"a": 1.5, "b": 2}])
def test_other_arguments_are_refused(scripts: Scripts, arguments: Any) -> None:
    with pytest.raises(TypeError):
        scripts.call("echo", "w", **arguments)
    assert scripts.call("count", "w").fields == {"seq": "1"}


def test_a_server_that_forgot_the_scripts_is_told_again(scripts: Scripts, client: RedisClient) -> None:
    scripts.call("count", "w")
    client.script_flush()
    assert scripts.call("count", "w").fields == {"seq": "2"}
    assert scripts.call("count", "w").fields == {"seq": "3"}


@pytest.mark.parametrize(("how", "where"), [("library", "lib/counters.lua:10"), ("here", "fail.lua:8")])
def test_a_bug_says_in_which_file_and_line(scripts: Scripts, how: str, where: str) -> None:
    with pytest.raises(ScriptBug, match=f"^fail at {where}: ") as bug:
        scripts.call("fail", "w", how=how)
    assert (bug.value.command, bug.value.where) == ("fail", where)
    assert bug.value.text == str(bug.value.__cause__)


def test_a_command_of_redis_that_fails_is_a_bug(scripts: Scripts, client: RedisClient) -> None:
    with pytest.raises(ScriptBug, match="WRONGTYPE") as bug:
        scripts.call("fail", "w", how="type")
    assert bug.value.where == ("fail.lua" if isinstance(client, fakeredis.FakeRedis) else "lib/counters.lua:14")


@pytest.mark.parametrize("how", ["odd", "short", "flat"])
def test_an_answer_that_is_not_declared_is_a_bug(scripts: Scripts, how: str) -> None:
    with pytest.raises(ScriptBug, match="which it does not declare"):
        scripts.call("fail", "w", how=how)


@pytest.fixture
def real(server: str) -> Iterator[Redis]:
    """Yield the redis-server in its initial state."""
    with Redis(unix_socket_path=server) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("min-replicas-to-write", 0)
        client.replicaof("NO", "ONE")


def test_what_the_server_says_of_itself_is_not_a_bug(real: Redis, commands: dict[str, Any]) -> None:
    scripts = Scripts(real, commands)
    for setting, reason in (("maxmemory", "out_of_memory"), ("min-replicas-to-write", "not_persisting")):
        real.config_set(setting, 1)
        with pytest.raises(StoreUnavailable, match=r"^Redis at unix://") as raised:
            scripts.call("count", "w")
        assert raised.value.reason == reason
        real.config_set(setting, 0)
    real.replicaof("127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="is read-only"):
        scripts.call("count", "w")


def test_a_busy_server_and_a_killed_script_are_not_bugs(real: Redis, commands: dict[str, Any]) -> None:
    real.config_set("busy-reply-threshold", 50)
    scripts = Scripts(real, commands)
    with ThreadPoolExecutor() as threads:
        spinning = threads.submit(scripts.call, "spin", "w")
        with pytest.raises(StoreUnavailable, match="is busy"):  # noqa: PT012
            while not spinning.done():
                scripts.call("count", "w")
        real.script_kill()
        with pytest.raises(ResponseError, match="killed"):
            spinning.result()


class Answering(Redis):
    """A client whose server answers always the same."""

    def __init__(self, answer: Exception) -> None:
        super().__init__()
        self.answer = answer

    def execute_command(self, *args: Any, **options: Any) -> Any:
        raise self.answer


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Gone("gone"), "unreachable"), (Late("late"), "timeout"), (BusyLoadingError("Redis is loading"), "loading")],
)
def test_errors_of_the_connection_say_why_redis_cannot_serve(commands: dict[str, Any], error: Exception, reason: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"^Redis at redis://localhost:6379/0 ") as raised:
        Scripts(Answering(error), commands).call("count", "w")
    assert raised.value.reason == reason
    assert raised.value.__cause__ is error


AS_6_2 = "Error running script (call to f_0): @user_script:{0}: "


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("@user_script: {0}: -OOM command not allowed when used memory > 'maxmemory'.", StoreUnavailable, "is out of memory"),
        ("@user_script: {0}: -READONLY You can't write against a read only replica.", StoreUnavailable, "is read-only"),
        ("@user_script: {0}: -MISCONF Redis is configured to save RDB snapshots", StoreUnavailable, "cannot persist what"),
        ("user_script:{0}: attempt to index local 'nothing' (a nil value)", ScriptBug, "fail at lib/counters.lua:10: Error"),
    ],
)
def test_redis_6_2_wraps_what_happens(commands: dict[str, Any], text: str, kind: type[Exception], message: str) -> None:
    line = commands["fail"].text.split("\n").index("  return nothing.at_all") + 1
    error = ResponseError((AS_6_2 + text).format(line), status_code="ERR")
    with pytest.raises(kind, match=message):
        Scripts(Answering(error), commands).call("fail", "w", how="")
