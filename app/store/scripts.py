"""The calls of commands on Redis: EVALSHA first, the whole text if the server does not know it, and a tagged reply.

A refusal is a reply like any other. An error of a script is a bug, reported with file and line. An error of the server (out of
memory, read only, loading …) or of the connection is StoreUnavailable with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeGuard
from urllib.parse import quote
from weakref import WeakKeyDictionary

from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, RedisClusterException, RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from app.domain.errors import StoreUnavailable
from app.store.connection import RedisClient, translate_error
from app.store.keys import key, prefix
from app.store.lua_linker import LuaCommand, load_commands
from app.store.lua_master_check import OTHER_MASTER
from app.store.master_id import MASTER_ID, tracker_of

CallWrapper: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""A context around each call of a script, made from the name of the script."""
Arg: TypeAlias = str | bytes | int | bool | None
EvalArgs: TypeAlias = tuple[Arg, ...]
"""The arguments of EVAL and EVALSHA after the script: the number of keys, the keys, and ARGV, which ends with the master's
id."""

_OTHER_MASTER_TAGS = (OTHER_MASTER, OTHER_MASTER.encode())
ADOPTIONS = 3
"""The most attempts to make a server the master of a workspace, because other processes adopt at the same time."""
_LINE = re.compile(r'(?:user_script|\[string "<python>"\]):\s?(\d+)')
_WRAPPED = re.compile(r"user_script:\s?\d+: -(([A-Z]+) (.*))", re.DOTALL)
"""An error of the server in the form in which Redis 6.2 wraps it inside a script."""
_CLASSES = {"OOM": OutOfMemoryError, "READONLY": ReadOnlyError}


_CALL_WRAPPERS: WeakKeyDictionary[RedisClient, CallWrapper] = WeakKeyDictionary()


def observe(client: RedisClient, *around: CallWrapper) -> None:
    """Wrap every script call on this client in these contexts. It takes effect for `Scripts` made afterwards."""
    _CALL_WRAPPERS[client] = around[0] if len(around) == 1 else lambda script: _nested(around, script)


@contextmanager
def _nested(around: Sequence[CallWrapper], script: str) -> Iterator[None]:
    with ExitStack() as stack:
        for each in around:
            stack.enter_context(each(script))
        yield


def _no_wrapper(_: str) -> AbstractContextManager[object]:
    return nullcontext()


class ScriptReply(NamedTuple):
    """The reply of a command: the tag of the outcome, and its fields by name, each a text or a list."""

    tag: str
    fields: dict[str, Any]


class ScriptBug(Exception):  # noqa: N818
    """A script failed, or gave an undeclared reply: a bug of Poolkeeper, never a fault of the caller."""

    def __init__(self, command: str, where: str, text: str) -> None:
        super().__init__(command, where, text)
        self.command, self.where, self.text = command, where, text

    def __str__(self) -> str:
        return f"{self.command} at {self.where}: {self.text}"


class Scripts:
    """The commands of a folder, for one server or cluster."""

    def __init__(self, client: RedisClient, commands: Mapping[str, LuaCommand] | None = None) -> None:
        self._client = client
        self._commands = load_commands() if commands is None else commands
        self._wrapper, self._tracker = _CALL_WRAPPERS.get(client, _no_wrapper), tracker_of(client)

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Run a command in a workspace, with exactly its declared arguments."""
        prepared = self._commands[command]
        tail = _arguments(prepared, workspace, args)
        with self._wrapper(command), translated_errors(self._client):
            answer = self._evaluate(prepared, tail)
            if _is_other_master(answer):
                answer = self._repeat_as_master(workspace, prepared, tail, answer)
            return _decode_reply(prepared, answer)

    def _repeat_as_master(self, workspace: str, command: LuaCommand, tail: EvalArgs, answer: list[object]) -> object:
        """Make the server the master of a workspace and repeat a call. Return its answer."""
        for _ in range(ADOPTIONS):
            self._adopt(workspace, _decode_value(answer[1]))
            repeated = self._evaluate(command, tail)
            if not _is_other_master(repeated):
                return repeated
            answer = repeated
        raise StoreUnavailable(
            "failing_over", f"workspace {workspace} has another master than Redis at {address(self._client)}"
        )

    def _adopt(self, workspace: str, stored: str) -> None:
        """Make the server the master of a workspace, unless its id was read before it changed."""
        if stored:
            self._tracker.identify_again()
        if Scripts(self._client).call("adopt", workspace, now=None, stored=stored).tag == "deposed":
            raise StoreUnavailable("failing_over", f"Redis at {address(self._client)} was replaced by another master")

    def _evaluate(self, command: LuaCommand, tail: EvalArgs) -> object:
        answer = self._execute("EVALSHA", command.sha, *tail)
        return self._execute("EVAL", command.text, *tail) if isinstance(answer, NoScriptError) else answer

    def _execute(self, *words: Arg) -> object:
        try:
            return self._client.execute_command(*words)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            return error


def scan_pages(scripts: Scripts, command: str, workspace: str, /, **args: Arg) -> Iterator[ScriptReply]:
    """Yield the replies of a command that reads a page at a cursor, until the cursor is at the end."""
    cursor = ""
    while cursor != "0":
        reply = scripts.call(command, workspace, cursor=cursor or "0", **args)
        yield reply
        cursor = reply.fields.get("cursor", "0")


class translated_errors:  # noqa: N801 - reads as a word
    """A context that raises StoreUnavailable if Redis cannot serve; any other error passes as it is."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RedisError | RedisClusterException) and (away := translate_error(error, address(self._client))):
            raise away from error


def address(client: RedisClient) -> str:
    """Return the URL of a client's server, without user and password."""
    if isinstance(client, RedisCluster):
        return "redis+cluster://" + ",".join(str(node.name) for node in client.get_nodes())  # type: ignore[no-untyped-call]
    pool, options = client.connection_pool, client.connection_pool.connection_kwargs
    if isinstance(pool, SentinelConnectionPool):
        return f"redis+sentinel:///{pool.service_name}"
    if "path" in options:
        return f"unix://{quote(options['path'])}"
    return f"redis://{options.get('host')}:{options.get('port')}/{options.get('db') or 0}"


def _encode_argument(value: Arg) -> str | bytes:
    """Return an argument as text: None is the empty text, true and false are 1 and 0."""
    if isinstance(value, str | bytes):
        return value
    if value is None:
        return ""
    if isinstance(value, int):
        return str(int(value))
    raise TypeError(f"{value!r} is neither a text nor a whole number")


def _arguments(command: LuaCommand, workspace: str, args: Mapping[str, Arg]) -> EvalArgs:
    """Return the arguments of a call: exactly the declared ones, without the master's id."""
    if args.keys() != command.arg_names:
        missing, unknown = sorted(command.arg_names - args.keys()), sorted(args.keys() - command.arg_names)
        raise TypeError(f"{command.name}: missing {missing}, unknown {unknown}")
    values = [_encode_argument(args[name]) for name in command.caller_args]
    return 2, *_keys(workspace), *values, MASTER_ID


@lru_cache(maxsize=1024)
def _keys(workspace: str) -> tuple[str, str]:
    """Return the keys of a call: the prefix of the workspace, and `meta`."""
    return prefix(workspace), key("meta", workspace)


def _is_other_master(answer: object) -> TypeGuard[list[object]]:
    return type(answer) is list and bool(answer) and answer[0] in _OTHER_MASTER_TAGS


def _decode_reply(command: LuaCommand, answer: object) -> ScriptReply:
    if isinstance(answer, Exception):
        judged = _classify_error(command, answer)
        if judged is answer:
            raise answer
        raise judged from answer
    if isinstance(answer, list) and answer:
        tag, *values = _decode_value(answer)
        names = command.replies.get(tag)
        if names is not None and len(names) == len(values):
            return ScriptReply(tag, dict(zip(names, values, strict=True)))
    raise ScriptBug(command.name, command.file, f"answered {answer!r}, which it does not declare")


def _decode_value(value: object) -> Any:
    if isinstance(value, list):
        return [item if type(item) is str else _decode_value(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    return "" if value is None else str(value)


def _classify_error(command: LuaCommand, error: Exception) -> Exception:
    """Return an error of the server as it is, and an error of a script (code ERR) as a ScriptBug."""
    text = str(error)
    if type(error) is not ResponseError or "Script killed by user" in text:
        return error
    if wrapped := _WRAPPED.search(text):
        own = _CLASSES.get(wrapped[2])
        return own(wrapped[3], status_code=wrapped[2]) if own else ResponseError(wrapped[1])
    if error.status_code != "ERR" and not text.startswith("WRONGTYPE "):
        return error
    line = _LINE.search(text)
    return ScriptBug(command.name, command.where(int(line[1])) if line else command.file, text)
