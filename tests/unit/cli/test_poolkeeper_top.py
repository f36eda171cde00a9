"""`poolkeeper top`: its drawing, once in a pipe and live on a terminal, and its behaviour without a service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.keyboard import parse_keys
from poolkeeper.cli.top_data import PoolDetail, TopData
from poolkeeper.cli.top_render import TopView, divide_cells

from tests.support.cli_program import Program
from tests.support.stub_server import Action, StubHandler, StubServer, refuse, reply

STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def a_pool(name: str = "gpus", **more: Any) -> dict[str, Any]:
    """Return a pool as the service describes it: 4 of 8 gpu are used, one of them borrowed, two are held."""
    amounts = {"capacity": {"gpu": 8}, "used": {"gpu": 4}, "borrowed": {"gpu": 1}, "held": {"gpu": 2}, "free": {"gpu": 4}}
    return {"name": name, "description": "", "active_count": 2, "queue_length": 0, **amounts, **more}


def drawn(pool: Mapping[str, Any], close: PoolDetail | None = None, width: int = 76) -> list[str]:
    """Return the lines of a pool, in plain characters."""
    sight = TopData([pool], {str(pool["name"]): close} if close else {})
    ((_, lines),) = TopView(width, plain=True, now=NOW).pools(sight)
    return ["".join(word.text for word in line).rstrip() for line in lines]


@pytest.mark.parametrize(
    ("parts", "cells"),
    [
        ((4, 4, 0, 0), [10, 10, 0, 0]),
        ((0, 0, 0, 0), [0, 0, 0, 0]),
        ((1, 0, 0, 10**15), [1, 0, 0, 19]),
        ((1, 1, 1, 997), [1, 1, 1, 17]),
        ((7, 0, 0, 6), [11, 0, 0, 9]),
        ((10, 10, 10, 10**6), [1, 1, 1, 17]),
    ],
)
def test_a_bar_shows_all_there_is_and_has_its_length(parts: tuple[int, ...], cells: list[int]) -> None:
    assert divide_cells(parts, 20) == cells


def test_the_bar_of_a_pool() -> None:
    assert drawn(a_pool(description="of\x1b[2J all")) == [
        "1 gpus  2 running, 0 waiting  of?[2J all",
        "  gpu ########++~~~~~..... 4 of 8: 3 in share, 1 borrowed, 2 held, 2 free",
    ]


def test_a_pool_that_was_lowered_below_its_use() -> None:
    (_, bar) = drawn(a_pool(capacity={"gpu": 2}, free={"gpu": 0}, held={"gpu": 0}))
    assert bar == f"  gpu {'#' * 15}{'+' * 5} 4 of 2: 3 in share, 1 borrowed, 0 held, 0 free"


def a_waiter(place: int, explained: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    index = {"id": f"r{place}", "component": "team", "component_type": "orchestrator", "submitted_at": "2026-01-31T11:55:00Z"}
    amounts = {"resources": {"gpu": 6, "step_run": 1}}
    return {**index, "name": None, "labels": {}, **amounts, "position": {"gpus": place}, "explained": explained, **more}


def an_allocation(number: int, **more: Any) -> dict[str, Any]:
    times = {"status": "allocated", "granted_at": "2026-01-31T11:30:00Z"}
    return {**a_waiter(1, None), "id": f"1m7vspzbtx5gvqem4v{number:02}", **times, **more}


def test_a_template_has_the_use_of_all_its_policies_and_a_limit_for_each() -> None:
    template = {"component": "user-*", "component_type": "step", "queued": 2, "policies": 4}
    template |= {"used": {"gpu": 3}, "reserved": {}, "limit": {"gpu": 1}}
    (row, *_) = drawn(a_pool(queue_length=2), PoolDetail([template], [], []))[2:]
    assert row == "  step/user-*  2 waiting  gpu 3: limit 1 each"


def test_policies_and_the_next_waiters_with_their_reasons() -> None:
    vision = {"component": "vision", "component_type": "orchestrator", "queued": 0}
    vision |= {"used": {"gpu": 6}, "reserved": {"gpu": 4}, "limit": {"gpu": 7}}
    team = vision | {
        "component": "team",
        "queued": 9,
        "used": {"gpu": 0},
        "reserved": {},
        "limit": {},
        "component_type": "step",
    }
    numbers = {
        "gpu": {"needed": 6, "free": 4, "held_for_others": 2},
        "step_run": {"needed": 1, "free": 9, "held_for_others": 0},
    }
    soon = {"earliest": "2026-01-31T12:01:00Z", "likely": "2026-01-31T12:03:00Z", "latest": "2026-01-31T15:00:00Z"}
    reasons: list[dict[str, Any] | None] = [
        {"verdict": "held", "keys": numbers, "estimated_start": soon},
        {
            "verdict": "waiting_for_victims",
            "keys": {},
            "estimated_start": soon | {"latest": None, "is_rough": True, "run_times": 2},
        },
        {"verdict": "something_new", "keys": {}, "estimated_start": None},
        None,
    ]
    close = PoolDetail([vision, team], [], [a_waiter(place, reason) for place, reason in enumerate(reasons, start=1)])
    assert drawn(a_pool(queue_length=9), close)[2:] == [
        "  vision     0 waiting  gpu 6: 4 of 4 reserved, 2 borrowed, limit 7",
        "  step/team  9 waiting  uses nothing",
        "  WAITING  COMPONENT  ASKS   FOR",
        "  1 r1     team       gpu=6  5m",
        "      held for others: 6 gpu needed, 2 free; likely in 3m, by 3h",
        "  2 r2     team       gpu=6  5m",
        "      waits for victims; likely in 3m (from 2 run times)",
        "  3 r3     team       gpu=6  5m",
        "      something_new",
        "  4 r4     team       gpu=6  5m",
        "  and 5 more",
    ]


def test_of_many_policies_those_are_shown_that_do_something() -> None:
    idle = {"component_type": "orchestrator", "queued": 0, "used": {"gpu": 0}, "reserved": {}, "limit": {}}
    policies = [idle | {"component": f"team-{number}"} for number in range(9)]
    policies[4] |= {"queued": 2}
    policies[7] |= {"used": {"gpu": 1}}
    sight = TopData([a_pool(queue_length=2)], {"gpus": PoolDetail(policies, [], [a_waiter(1, None)])})
    ((_, lines),) = TopView(80, plain=True, now=NOW, max_policies=3).pools(sight)
    messages = ["".join(word.text for word in line).strip() for line in lines][2:]
    assert [line.split()[0] for line in messages] == ["team-0", "team-4", "team-7", "and", "WAITING", "1", "and"]
    assert messages[3] == "and 6 more policies"


def test_what_runs_is_shown_with_name_owner_and_for_how_long() -> None:
    labels = {"user": "ana", "host": "gpu-01", "command": "python train.py --epochs 9"}
    running = [
        an_allocation(1, labels=labels),
        an_allocation(2, name="nightly", labels={"user": "bob"}, status="preempting", resources={"gpu": 1, "step_run": 1}),
    ]
    waiting = a_waiter(1, None, labels=labels, id="1m7vspzbtx5gvqemabcd")
    assert drawn(a_pool(active_count=7), PoolDetail([], running, [waiting]), 84)[2:] == [
        "  RUNNING   NAME                        OWNER       COMPONENT  ASKS   FOR",
        "  em4v01    python train.py --epochs 9  ana@gpu-01  team       gpu=6  30m",
        "  em4v02    nightly                     bob         team       gpu=1  30m leaving",
        "  and 5 more",
        "  WAITING   NAME                        OWNER       COMPONENT  ASKS   FOR",
        "  1 emabcd  python train.py --epochs 9  ana@gpu-01  team       gpu=6  5m",
    ]


def test_no_line_is_wider_than_the_screen() -> None:
    labels = {"user": "a" * 40, "host": "h" * 60, "command": "python " + "x" * 90}
    amounts = {"gpu": 10**9, "mcpu": 10**12, "memory_mb": 10**15, "step_run": 1}
    wide = {"component": "c" * 63, "component_type": "t" * 63, "labels": labels, "resources": amounts}
    explained = {"verdict": "no_capacity", "keys": {"k" * 63: {"needed": 10**15, "free": 0, "held_for_others": 0}}}
    policy = {**wide, "queued": 10**6, "used": {"gpu": 10**15}, "reserved": {"gpu": 10**14}, "limit": {"gpu": 10**15}}
    detail = PoolDetail([policy], [an_allocation(1, **wide)], [a_waiter(1, {**explained, "estimated_start": None}, **wide)])
    pool = a_pool("p" * 63, description="d" * 900, **{name: {"gpu": 10**15} for name in ("capacity", "used", "borrowed")})
    for width in (80, 60, 40):
        lines = drawn(pool, detail, width)
        assert max(map(len, lines)) <= width
        assert any("em4v01" in line for line in lines)


def test_a_low_screen_shows_fewer_requests() -> None:
    detail = PoolDetail([], [an_allocation(number) for number in range(5)], [a_waiter(place, None) for place in range(1, 6)])
    data = TopData([a_pool(active_count=5, queue_length=9)], {"gpus": detail})
    ((_, lines),) = TopView(80, plain=True, now=NOW, max_requests=2).pools(data)
    assert ["".join(span.text for span in line).split()[0] for line in lines[2:]] == [
        "RUNNING", "em4v00", "em4v01", "and", "WAITING", "1", "2", "and",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\x1b[A\x1bOBj", ["up", "down", "j"]),
        ("\x1b[3~\x1b[15~2", ["2"]),  # Delete, F5
        ("\x1b[1;5A\x1bOq\x1b[<0;39;3M", []),  # Ctrl-Up, a key of the number pad, the mouse
        ("\x1bq", ["q"]),
        ("\x1b", []),
        ("", ["q"]),
    ],
)
def test_what_other_keys_send_is_no_letter_and_no_number(typed: str, keys: list[str]) -> None:
    assert list(parse_keys(typed)) == keys


# ---- before the real service


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Create a pool `gpus` of 4 gpu with a policy of `team`, which uses 3 of them and waits for 2; return the program."""
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team", "--reserved", "gpu=2")
    for amount in (3, 2):
        submit(poolkeeper, amount)
    return poolkeeper


def submit(program: Program, amount: int) -> str:
    words = ("--component", "team", "--resource", f"gpu={amount}", "-o", "name", "--lease", "none")
    return program("request", "submit", *words).line


def test_without_a_terminal_it_is_one_snapshot(gpus: Program) -> None:
    (waits,) = gpus("pool", "requests", "gpus", "-o", "name").out.splitlines()
    (runs,) = gpus("pool", "requests", "gpus", "--view", "active", "-o", "name").out.splitlines()
    bar = "█" * 12 + "▓" * 6 + "·" * 6
    lines = gpus("top").out.splitlines()
    assert lines[:3] == [
        "1 gpus  1 running, 1 waiting",
        f"  gpu {bar} 3 of 4: 2 in share, 1 borrowed, 0 held, 1 free",
        "  team  1 waiting  gpu 3: 2 of 2 reserved, 1 borrowed",
    ]
    assert lines[3] == "  RUNNING   COMPONENT  ASKS   FOR"
    assert re.fullmatch(rf"  {runs[-6:]}    team       gpu=3  \d+s", lines[4])
    assert lines[5] == "  WAITING   COMPONENT  ASKS   FOR"
    assert re.fullmatch(rf"  1 {waits[-6:]}  team       gpu=2  \d+s", lines[6])
    assert lines[7].startswith("      no capacity: 2 gpu needed, 1 free")
    assert lines[8:] == ["", "█ in share  ▓ borrowed  ░ held  · free"]
    assert gpus("top", "-o", "name").line == "gpus"
    (pool,) = gpus("top", "-o", "json").json
    assert [policy["component"] for policy in pool["policies"]] == ["team"]
    assert [(row["id"], row["explained"]["verdict"]) for row in pool["queue"]] == [(waits, "no_capacity")]
    assert [row["id"] for row in pool["running"]] == [runs]


def test_where_there_is_no_pool(poolkeeper: Program) -> None:
    assert poolkeeper("top").line == "there is no pool"


# ---- when it is not as it should be


def answers(to: Mapping[str, Any]) -> list[Action]:
    """Return an action that answers by the path, any number of times."""

    def act(handler: StubHandler) -> None:
        document = next((body for part, body in to.items() if part in handler.path), None)
        (reply(document) if document is not None else refuse(404, "no_such_route"))(handler)

    return [act] * 1000


def test_once_without_a_service(tmp_path: Path) -> None:
    nowhere = Program("http://127.0.0.1:9", tmp_path, "default")
    assert "Connection refused" in nowhere("top", ends=ExitCode.UNAVAILABLE).err


def test_without_the_permission_to_explain_the_rest_is_drawn(stubbed: Program, stub: StubServer) -> None:
    def act(handler: StubHandler) -> None:
        if "/explain" in handler.path:
            return refuse(403, "not_permitted")(handler)
        if "/policies" in handler.path or "view=active" in handler.path:
            return reply({"items": [], "next_cursor": None})(handler)
        rows = [a_waiter(1, None)] if "/requests" in handler.path else [a_pool()]
        return reply({"items": rows, "next_cursor": None})(handler)

    stub.script(*[act] * 20)
    assert re.search(r"^  1 r1     team       gpu=6  \d+\w$", stubbed("top").out, re.M)
