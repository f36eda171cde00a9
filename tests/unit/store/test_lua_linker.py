"""The linker of Lua files: a head that differs from the code is refused, and a composed text contains only what it needs."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from app.domain import queue_score
from app.store.connection import RedisClient
from app.store.lua_constants import LuaContractError, qualify_libraries, resolve_constants
from app.store.lua_linker import composed_texts, load_commands
from app.store.lua_prelude import LIBRARY_LOADER
from app.store.scripts import ScriptBug, Scripts

MALFORMED = Path(__file__).parent / "malformed"
REFUSED = {
    "arg_undeclared": "do_it.lua:5: id is used but not declared with @args",
    "arg_unused": "do_it.lua:3: @args id is declared but not used",
    "args_in_library": "lib/pools.lua:4: args belongs to the command, which hands a library what it needs",
    "args_of_library": "lib/pools.lua:2: @args is for commands",
    "circle": "lib/b.lua:2: libraries use each other in a circle: a -> b -> a",
    "circle_of_one": "lib/b.lua:2: libraries use each other in a circle: b -> b",
    "key_undeclared": "do_it.lua:7: pool is used but not declared with @reads",
    "key_unused": "do_it.lua:2: @reads pool is declared but not used",
    "library_undeclared": "do_it.lua:4: pools is used but not declared with @use",
    "library_unused": "do_it.lua:2: @use pools is declared but not used",
    "no_head": "do_it.lua:1: the head does not begin with a sentence that says what this does",
    "no_reply": "do_it.lua:1: a command has at least one @reply",
    "no_sentence": "do_it.lua:1: the head does not begin with a sentence that says what this does",
    "not_a_file_name": "do-it.lua:1: do-it is not a name in Lua",
    "not_a_name": "do_it.lua:2: end is not a name in Lua",
    "reply_field_twice": "do_it.lua:2: @reply more is declared twice",
    "reply_of_library": "lib/pools.lua:2: @reply is for commands",
    "reply_twice": "do_it.lua:3: @reply done is declared twice",
    "reply_undeclared": "do_it.lua:4: refused is used but not declared with @reply",
    "reply_unused": "do_it.lua:3: @reply refused is declared but not used",
    "same_name_in_two_folders": "second/do_it.lua:1: first/do_it.lua is called do_it, too",
    "same_name": "pools.lua:1: a library is called pools, too",
    "taken_name": "lib/redis.lua:1: a library cannot be called redis, which is something else already",
    "twice_on_a_line": "do_it.lua:2: @args now is declared twice",
    "twice_on_two_lines": "do_it.lua:3: @args now is declared twice",
    "unknown_constant": "do_it.lua:4: there is no constant INFINITE",
    "unknown_key": "do_it.lua:2: there is no key cellar",
    "unknown_library": "do_it.lua:2: there is no library pools",
    "unknown_state": "do_it.lua:5: there is no state waiting",
    "key_uncalled": "do_it.lua:5: a key is always called: keys.name(…)",
    "key_miscalled": "do_it.lua:5: keys.pool takes 1 values, not 2",
    "unknown_word": "do_it.lua:2: @returns is not known: only @use, @reads, @writes, @args and @reply are",
    "write_undeclared": "do_it.lua:5: pool is written but not declared with @writes",
    "write_undeclared_of_local": "do_it.lua:6: pool is written but not declared with @writes",
    "write_undeclared_of_loop": "do_it.lua:5: pool is written but not declared with @writes",
    "write_undeclared_of_parameter": "do_it.lua:5: pool is written but not declared with @writes",
    "write_undeclared_of_either": "do_it.lua:6: pools is written but not declared with @writes",
    "write_through_variable": "do_it.lua:5: a key is written through a variable and not declared with @writes",
    "write_unused": "do_it.lua:2: @writes pool is declared but not written",
    "read_and_written": "do_it.lua:2: @reads pool is declared but not used",
    "unknown_redis_command": "do_it.lua:4: FLUSHALL is not known to read or write",
    "word_without_names": "do_it.lua:2: @use names nothing",
}

TREE = {
    "requests/grant.lua": """\
-- Grant what fits and say
-- how much there is now.
--
-- What is not of interest is explained here.
-- @use queue accounts
-- @reads pool
-- @args now id
-- @args amount
-- @reply granted state left
-- @reply refused

local left = accounts.left(keys.pool(args.id)) - args.amount
local possible = string.find(transitions, ' queued>' .. states.allocated, 1, true)
if left > const.MAX_AMOUNT or not possible then return reply.refused() end
queue.drop(args.id..args.now)
return reply.granted(states.allocated, left)
""",
    "read/look.lua": "-- Look.\n-- @use clock\n-- @reply seen\n\nclock.tick()\nreturn reply.seen()\n",
    "lib/accounts.lua": "-- Know what is left.\n-- @use clock\n\nfunction accounts.left(key) return clock.tick() + #key end\n",
    "lib/clock.lua": "-- Tick.\n\nlocal ticks = 0\nfunction clock.tick()\n  ticks = ticks + 1\n  return ticks\nend\n",
    "lib/queue.lua": """\
-- Read the queue.
-- @use accounts
-- @reads policy

function queue.drop(id)
  -- lanes.drop(id) and keys.pool are words only
  local text = 'keys.requests and ' .. "args.now" .. [[
    states.nowhere ]]
  local own = {states = {}}
  return accounts.left(keys.policy(id, own.states.nowhere .. text))
end
""",
}


def planted(folder: Path, tree: dict[str, str]) -> Path:
    """Write the files into the folder, and return it."""
    for name, text in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def line_of(text: str, words: str) -> int:
    """Return the line of a text with the words."""
    return next(number for number, line in enumerate(text.split("\n"), 1) if words in line)


@pytest.mark.parametrize("case", sorted(path.name for path in MALFORMED.iterdir()))
def test_what_is_malformed_is_refused_with_its_place(case: str) -> None:
    with pytest.raises(LuaContractError) as error:
        load_commands(MALFORMED / case)
    assert str(error.value) == REFUSED[case]


def test_every_refusal_has_its_files() -> None:
    assert REFUSED.keys() == {path.name for path in MALFORMED.iterdir()}


def test_the_head_is_the_contract(tmp_path: Path) -> None:
    grant = load_commands(planted(tmp_path, TREE))["grant"]
    assert grant.name == "grant"
    assert grant.file == "requests/grant.lua"
    assert grant.sentence == "Grant what fits and say how much there is now."
    assert grant.args == ("now", "id", "amount")
    assert grant.replies == {"granted": ("state", "left"), "refused": ()}
    assert grant.sha == hashlib.sha1(grant.text.encode()).hexdigest()


def test_libraries_stand_once_and_after_those_they_use(tmp_path: Path) -> None:
    commands = load_commands(planted(tmp_path, TREE))
    assert commands["grant"].libraries == ("clock", "accounts", "queue")
    assert commands["look"].libraries == ("clock",)
    opened = re.findall(r"^function _load.(\w+)\(\1\)\n--", commands["grant"].text, re.MULTILINE)
    assert opened == ["clock", "accounts", "queue"]
    assert commands["grant"].text.endswith(
        qualify_libraries(resolve_constants(TREE["requests/grant.lua"], "requests/grant.lua"), ("queue", "clock", "accounts"))
    )


KEYS_WRITTEN_OUT = {
    "keys.leases()": "(prefix .. 'leases')",
    "keys.pool(name)": "(prefix .. 'pool:' .. name)",
    "keys.pool(a .. b)": "(prefix .. 'pool:' .. (a .. b))",
    "keys.pool(f('x, y', {1, 2}))": "(prefix .. 'pool:' .. (f('x, y', {1, 2})))",
    "keys.policy(keys.leases(), ')')": "(prefix .. 'pool:' .. ((prefix .. 'leases')) .. ':policy:' .. (')'))",
    "keys.pool_parking(p, c, n) .. 'keys.leases()'": (
        "(prefix .. 'pool:' .. p .. ':parking:' .. c .. '|' .. n) .. 'keys.leases()'"
    ),
}


@pytest.mark.parametrize("written", KEYS_WRITTEN_OUT)
def test_keys_are_written_out_where_they_are_built(written: str) -> None:
    assert (
        resolve_constants(f"return {written} -- keys.leases()", "x.lua")
        == f"return {KEYS_WRITTEN_OUT[written]} -- keys.leases()"
    )


@pytest.mark.parametrize(
    ("text", "qualified"),
    [
        ("queue.drop(1)", "libraries.queue.drop(1)"),
        ("local n = 'a' .. queue.name", "local n = 'a' .. libraries.queue.name"),
        ("return 'a'..queue.name", "return 'a'..libraries.queue.name"),
        ("pool.queue.name = lane.queue", "pool.queue.name = lane.queue"),
        ("local queues = own_queue.name", "local queues = own_queue.name"),
        ("queue = 'queue.name' -- queue.name", "queue = 'queue.name' -- queue.name"),
    ],
)
def test_a_library_is_qualified_where_it_is_used(text: str, qualified: str) -> None:
    assert qualify_libraries(text, ("lanes", "queue")) == qualified
    assert qualify_libraries(text, ()) == text


def test_the_prelude_has_what_is_used(tmp_path: Path) -> None:
    prelude = load_commands(planted(tmp_path, TREE))["grant"].text.partition("function _load.clock")[0].split("\n")
    assert prelude[:3] == [
        "local prefix = KEYS[1]",
        "local args = {now = ARGV[1], id = ARGV[2], amount = ARGV[3]}",
        prelude[2],
    ]
    assert prelude[2].startswith("local transitions = ' queued>allocated queued>cancelled queued>expired queued>rejected ")
    assert "function reply.granted(state, left) return {'granted', _plain(state), _plain(left)} end" in prelude
    assert "function reply.refused() return {'refused'} end" in prelude


def test_the_prelude_has_nothing_else(tmp_path: Path) -> None:
    look = load_commands(planted(tmp_path, TREE))["look"]
    assert look.text.partition("function _load.clock")[0] == "\n".join(
        ["local reply = {}", "do", "function reply.seen() return {'seen'} end", "end", *LIBRARY_LOADER, ""]
    )


def test_constants_are_plain(tmp_path: Path) -> None:
    names = ("BORROWING_STEP", "CLASS_COUNT", "MAX_AMOUNT", "MAX_SUBMISSIONS", "PRIORITY_COUNT", "RANK_COUNT")
    body = " + ".join(f"const.{name}" for name in names)
    tree = {"sum.lua": f"-- Sum.\n-- @reply done sum\n\nreturn reply.done({body})\n"}
    tree["room.lua"] = "-- Room.\n-- @reply done room\n\nreturn reply.done(const.UNBOUNDED.mcpu)\n"
    commands = load_commands(planted(tmp_path, tree))
    assert commands["room"].text.startswith("local const = {UNBOUNDED = {mcpu = true, memory_mb = true, step_run = true}}\n")
    text = commands["sum"].text
    assert " + ".join(str(getattr(queue_score, name)) for name in names) in text
    assert "const" not in text


def test_lines_lead_back_to_their_files(tmp_path: Path) -> None:
    grant = load_commands(planted(tmp_path, TREE))["grant"]
    assert grant.where(1) == "prelude:1"
    assert grant.where(line_of(grant.text, "ticks = ticks + 1")) == "lib/clock.lua:5"
    assert grant.where(line_of(grant.text, "-- Read the queue")) == "lib/queue.lua:1"
    frame_line = line_of(grant.text, "function _load.queue(queue)")
    assert grant.where(frame_line) == f"prelude:{frame_line}"
    assert grant.where(line_of(grant.text, "queue.drop(args.id")) == "requests/grant.lua:15"


def test_the_own_folder_is_read_once() -> None:
    assert load_commands() is load_commands()
    assert dict(composed_texts()) == {name: command.text for name, command in load_commands().items()}


def test_another_folder_is_read_anew(tmp_path: Path) -> None:
    planted(tmp_path, TREE)
    before = dict(composed_texts(tmp_path))
    planted(tmp_path, {"lib/clock.lua": TREE["lib/clock.lua"].replace("+ 1", "+ 2")})
    assert {name for name, text in composed_texts(tmp_path) if text != before[name]} == {"grant", "look"}


def test_a_library_runs_when_it_is_first_used_and_once(client: RedisClient, tmp_path: Path) -> None:
    tree = {
        "lib/first.lua": "-- First.\n\nlocal runs = 0\nruns = runs + 1\nfunction first.runs() return runs end\n",
        "lib/unused.lua": "-- Unused.\n\nerror('the body has run')\nfunction unused.nothing() end\n",
        "call.lua": "-- Call.\n-- @use first unused\n-- @args uses\n-- @reply done runs absent\n\n"
        "if args.uses == '1' then unused.nothing() end\nreturn reply.done(first.runs() + first.runs(), first.nothing)\n",
    }
    scripts = Scripts(client, load_commands(planted(tmp_path, tree)))
    assert scripts.call("call", "test", uses=False).fields == {"runs": "2", "absent": ""}
    with pytest.raises(ScriptBug, match="the body has run"):
        scripts.call("call", "test", uses=True)
