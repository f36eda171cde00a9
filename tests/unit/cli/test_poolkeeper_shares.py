"""`poolkeeper pool shares`: the tree as it is drawn, in one key and in several, in a pipe, on terminals and for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from poolkeeper.cli import output, shares
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import Program
from tests.support.stub_server import StubServer, refuse, reply

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NO_ALLOCATIONS: dict[str, list[str]] = {"non_preemptible": [], "aggressively_preemptible": [], "preemptible": []}


def a_node(name: str, parent: str | None = None, kind: str = "policy", keys: Sequence[str] = ("gpu",), **more: Any) -> Any:
    """Return a node as the service describes it; every key has the same numbers: `fair=0.5`."""

    def of_each_key(share: str, usual: float) -> dict[str, float]:
        return dict.fromkeys(keys, more.pop(share, usual))

    return {
        "name": name,
        "kind": kind,
        "component_type": "orchestrator" if kind == "policy" else None,
        "parent": parent,
        "weight": 1,
        "mode": None if kind == "policy" else "fair_share",
        "demand": dict.fromkeys(keys, 12),
        "usage": dict.fromkeys(keys, 4),
        "usage_share": of_each_key("used", 0.5),
        "demand_share": of_each_key("demanded", 1.5),
        "fair_share": of_each_key("fair", 0.75),
        "guarantee_share": of_each_key("guaranteed", 0.0),
        "limit_share": of_each_key("limited", 1.0),
        "satisfaction": 2 / 3,
        "status": "non_starving",
        "below_since": None,
        "allocations": NO_ALLOCATIONS,
    } | more


def ago(**how_long: float) -> str:
    """Return a time of the API this long ago."""
    return (datetime.now(UTC) - timedelta(**how_long)).isoformat()


def a_tree(keys: Sequence[str] = ("gpu",)) -> list[dict[str, Any]]:
    """Return a pool with a group of two policies, and a policy beside it."""
    taken = {"non_preemptible": ["r1", "r2"], "aggressively_preemptible": ["r3"], "preemptible": ["r4", "r5", "r6"]}
    return [
        a_node("gpus", None, "pool", keys, fair=1.0, guaranteed=1.0),
        a_node("research", None, "group", keys, guaranteed=0.25, mode="fifo", weight=2),
        a_node("audio", "research", keys=keys, fair=1 / 13, status="starving", below_since=ago(minutes=3)),
        a_node("vision", "research", keys=keys, limited=0.5, allocations=taken, below_since=ago(seconds=12, milliseconds=300)),
        a_node("team", keys=keys, component_type="step_operator", used=0.0, fair=0.0, satisfaction=None),
    ]


def drawn(program: Program, stub: StubServer, nodes: Sequence[Mapping[str, Any]], *words: str) -> list[str]:
    """Return the lines that are drawn into a pipe."""
    stub.script(reply({"accounts": nodes}))
    return program("pool", "shares", "gpus", *words).out.splitlines()


def test_a_pool_of_one_key(stubbed: Program, stub: StubServer) -> None:
    assert drawn(stubbed, stub, a_tree()) == [
        "ACCOUNT               USED  DEMAND  FAIR  GUARANTEE  LIMIT  RATIO  SPLIT  STATUS",
        "gpus                  50%   150%    100%  100%       100%   0.67   -      non-starving",
        "  research            50%   150%    75%   25%        100%   0.67   -      non-starving",
        "    audio             50%   150%    7.7%  0%         100%   0.67   -      starving for 3m",
        "    vision            50%   150%    75%   0%         50%    0.67   2/1/3  below for 12s",
        "  step_operator/team  0%    150%    0%    0%         100%   inf    -      non-starving",
    ]
    assert [call.path for call in stub.calls] == ["/api/v1/pools/gpus/shares"]


def test_a_pool_of_several_keys_has_a_line_for_each(stubbed: Program, stub: StubServer) -> None:
    nodes = a_tree(["gpu", "mcpu"])[:3]
    nodes[2]["usage_share"] = {"gpu": 0.5, "mcpu": 0.03}
    assert drawn(stubbed, stub, nodes) == [
        "ACCOUNT     USED  DEMAND  FAIR  GUARANTEE  LIMIT  RATIO  SPLIT  STATUS",
        "gpus        -     -       -     -          -      0.67   -      non-starving",
        ":gpu        50%   150%    100%  100%       100%   -      -      -",
        ":mcpu       50%   150%    100%  100%       100%   -      -      -",
        "  research  -     -       -     -          -      0.67   -      non-starving",
        "  :gpu      50%   150%    75%   25%        100%   -      -      -",
        "  :mcpu     50%   150%    75%   25%        100%   -      -      -",
        "    audio   -     -       -     -          -      0.67   -      starving for 3m",
        "    :gpu    50%   150%    7.7%  0%         100%   -      -      -",
        "    :mcpu   3%    150%    7.7%  0%         100%   -      -      -",
    ]


def test_wide_tells_units_weight_and_mode(stubbed: Program, stub: StubServer) -> None:
    lines = drawn(stubbed, stub, a_tree()[:3], "-o", "wide")
    assert [line[64:] for line in lines] == [
        "UNITS    WEIGHT  MODE        STATUS",
        "4 of 12  1       fair_share  non-starving",
        "4 of 12  2       fifo        non-starving",
        "4 of 12  1       -           starving for 3m",
    ]
    many = drawn(stubbed, stub, a_tree(["gpu", "mcpu"])[:1], "-o", "wide", "--no-headers")
    assert [line.split()[8:11] for line in many] == [["-", "1", "fair_share"], *[["4", "of", "12"]] * 2]


def test_the_depth_is_that_of_the_parents(stubbed: Program, stub: StubServer) -> None:
    nodes = [
        a_node("gpus", None, "pool"),
        a_node("a", None, "group"),
        a_node("b", "a", "group"),
        a_node("x", "b"),
        a_node("y", "a"),
        a_node("c", None, "group"),
        a_node("a", "c"),  # a component may be called as a group is
        a_node("z", "c"),
        a_node("w"),
    ]
    names = [line.partition("50%")[0].rstrip() for line in drawn(stubbed, stub, nodes, "--no-headers")]
    assert names == ["gpus", "  a", "    b", "      x", "    y", "  c", "    a", "    z", "  w"]


@pytest.mark.parametrize("keys", [["gpu"], ["gpu", "memory_mb"]])
@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_a_terminal(
    stubbed: Program, stub: StubServer, monkeypatch: pytest.MonkeyPatch, width: int, keys: list[str]
) -> None:
    nodes = a_tree(keys)[:4]
    nodes[3] |= {"status": "aggressively_starving", "below_since": ago(minutes=3)}
    whole = [word for line in drawn(stubbed, stub, nodes) for word in line.split()]
    monkeypatch.setattr(output, "is_terminal", lambda _: True)
    stub.script(reply({"accounts": nodes}))
    lines = COLOUR.sub("", stubbed("pool", "shares", "gpus", COLUMNS=str(width)).out).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    assert sorted(word for line in lines for word in line.split()) == sorted(whole), "words may take another line"
    assert [line for line in lines if line.startswith("    vision  ")]


def test_on_the_real_service(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8", "--setting", "discipline=fair_share")
    poolkeeper("group", "create", "gpus", "lab", "--reserved", "gpu=2")
    poolkeeper("policy", "attach", "gpus", "team", "--group", "lab")
    poolkeeper("policy", "attach", "gpus", "step_operator/other", "--weight", "2", "--limit", "gpu=6")
    for component, amount in (("team", 6), ("step_operator/other", 4)):
        poolkeeper("request", "submit", "--component", component, "--resource", f"gpu={amount}")
    shown = poolkeeper("pool", "shares", "gpus", "--no-headers").out
    assert re.sub(r"\d+s$", "a while", shown, flags=re.M).splitlines() == [
        "gpus                   75%  125%  100%  100%  100%  0.00  -      non-starving",
        "  lab                  75%  75%   50%   25%   100%  1.50  -      non-starving",
        "    team               75%  75%   50%   0%    100%  1.50  1/0/0  non-starving",
        "  step_operator/other  0%   50%   50%   0%    75%   0.00  -      below for a while",
    ]
    document = poolkeeper("pool", "shares", "gpus", "-o", "json").json
    assert [node["parent"] for node in document] == [None, None, "lab", None]


def test_for_programs(stubbed: Program, stub: StubServer) -> None:
    nodes = a_tree(["gpu", "mcpu"])
    assert drawn(stubbed, stub, nodes, "-o", "name") == ["gpus", "research", "audio", "vision", "step_operator/team"]
    assert yaml.safe_load("\n".join(drawn(stubbed, stub, nodes, "-o", "json"))) == nodes
    assert yaml.safe_load("\n".join(drawn(stubbed, stub, nodes, "-o", "yaml"))) == nodes


def test_a_pool_that_is_not_there(stubbed: Program, stub: StubServer) -> None:
    pools = reply({"items": [{"name": "gpus"}], "next_cursor": None})
    stub.script(refuse(404, "no_such_pool", "there is no pool gpu"), pools)
    missing = stubbed("pool", "shares", "gpu", ends=ExitCode.NOT_FOUND)
    assert missing.err == "poolkeeper: there is no pool gpu\n  did you mean gpus?\n"


def test_pools_are_completed(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=1")
    typed = "poolkeeper pool shares g"
    done = poolkeeper(_POOLKEEPER_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD="3")
    assert done.out.splitlines() == ["plain,gpus"]


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "0%"),
        (0.0000001, "<0.1%"),
        (0.001, "0.1%"),
        (0.05, "5%"),
        (1 / 13, "7.7%"),
        (0.0999, "10%"),
        (1 / 3, "33%"),
        (0.76923, "77%"),
        (1.0, "100%"),
        (2.5, "250%"),
    ],
)
def test_a_share_is_a_percentage(share: float, shown: str) -> None:
    assert shares.percent(share) == shown


@pytest.mark.parametrize(("ratio", "shown"), [(0.0, "0.00"), (1 / 3, "0.33"), (12.345, "12.35"), (None, "inf")])
def test_a_satisfaction_of_none_is_infinite(ratio: float | None, shown: str) -> None:
    assert shares.satisfaction({"satisfaction": ratio}) == shown


@pytest.mark.parametrize(
    ("status", "below_s", "shown"),
    [
        ("non_starving", None, "non-starving"),
        ("non_starving", 5.5, "below for 5s"),
        ("starving", 121, "starving for 2m"),
        ("aggressively_starving", 7201, "aggressively starving for 2h"),
    ],
)
def test_a_status_says_for_how_long(status: str, below_s: float | None, shown: str) -> None:
    since = None if below_s is None else ago(seconds=below_s)
    assert shares.status({"status": status, "below_since": since}) == shown
