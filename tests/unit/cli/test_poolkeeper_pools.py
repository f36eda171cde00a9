"""`poolkeeper pool`, `policy`, `group` and `workspace` on the real service."""

from __future__ import annotations

import re

import pytest
import yaml
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import Program


def table(out: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in out.splitlines()]


def test_a_pool_from_its_making_to_its_end(poolkeeper: Program) -> None:
    made = poolkeeper(
        "pool", "create", "gpus", "--capacity", "gpu=8", "--capacity", '{"mcpu": 64000}', "--setting", "patience_s=5m"
    )
    assert made.line == "created pool gpus: gpu=8,mcpu=64000"
    again = poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8", ends=ExitCode.REFUSED)
    assert again.err == "poolkeeper: there is a pool gpus already\n"
    changed = poolkeeper(
        "pool", "update", "gpus", "--capacity", "gpu=16,mcpu=0", "--description", "The lab's", "--setting", "patience_s=none"
    )
    assert changed.line == "updated pool gpus: gpu=16"
    document = poolkeeper("pool", "describe", "gpus", "-o", "json").json
    assert (document["capacity"], document["description"], document["settings"]["patience_s"]) == (
        {"gpu": 16},
        "The lab's",
        None,
    )
    assert poolkeeper("pool", "delete", "gpus").line == "deleted pool gpus"
    assert poolkeeper("pool", "delete", "gpus", ends=ExitCode.NOT_FOUND).err == "poolkeeper: there is no pool gpus\n"


def test_pools_are_listed_in_every_form(poolkeeper: Program) -> None:
    assert poolkeeper("pool", "list").out == "NAME  CAPACITY  USED  FREE  ACTIVE  QUEUED\n"
    assert poolkeeper("pool", "list", "-o", "json").json == []
    assert poolkeeper("pool", "list", "-o", "name").out == ""
    poolkeeper("pool", "create", "b", "--capacity", "gpu=8", "--description", "two\nlines \x1b[31m")
    poolkeeper("pool", "create", "a-long-name", "--capacity", "seat=1")
    plain = poolkeeper("pool", "list").out
    assert table(plain)[1:] == [["a-long-name", "seat=1", "-", "seat=1", "0", "0"], ["b", "gpu=8", "-", "gpu=8", "0", "0"]]
    assert {line.split("=")[0].rindex(" ") for line in plain.splitlines()[1:]} == {12}  # aligned
    assert table(poolkeeper("pool", "list", "--no-headers").out) == table(plain)[1:]
    assert "two lines ?[31m" in poolkeeper("pool", "list", "-o", "wide").out
    assert poolkeeper("pool", "list", "-o", "name").out == "a-long-name\nb\n"
    listed = poolkeeper("pool", "list", "-o", "json").json
    assert [row["name"] for row in listed] == ["a-long-name", "b"]
    assert yaml.safe_load(poolkeeper("pool", "list", "-o", "yaml").out) == listed


def test_a_pool_in_full(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8", "--description", "of the lab")
    poolkeeper("group", "create", "gpus", "lab", "--reserved", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "vision", "--reserved", "gpu=4", "--group", "lab", "--priority", "10")
    poolkeeper("policy", "attach", "gpus", "step_operator/research")
    labels = (
        "--label",
        "user=ana",
        "--label",
        "host=gpu-01",
        "--label",
        "command=python train.py --epochs 9 --data /of/the/lab",
    )
    holds = poolkeeper(
        *("request", "submit", "--component", "step_operator/research", "--resource", "gpu=7", "-o", "name"), *labels
    ).line
    waits = poolkeeper(
        *("request", "submit", "--component", "vision", "--resource", "gpu=3", "--name", "a b", "-o", "name")
    ).line
    shown = poolkeeper("pool", "describe", "gpus").out
    blocks = [block.splitlines() for block in shown.split("\n\n")]
    assert blocks[0][0].split() == ["Pool:", "gpus"]
    assert "Description: of the lab" in blocks[0]
    assert "Requests:    1 active, 1 queued" in blocks[0]
    assert [line.split() for line in blocks[1]] == [
        ["Capacity"],
        ["KEY", "CAPACITY", "USED", "BORROWED", "FREE", "HELD"],
        ["gpu", "8", "7", "7", "1", "0"],
    ]
    assert blocks[2][0] == "1 group"
    assert blocks[3][0] == "2 policies"
    assert [line.split() for line in blocks[3][2:]] == [
        ["vision", "10", "gpu=4", "-", "-", "-", "1", "lab"],
        ["step_operator/research", "0", "-", "-", "gpu=7", "gpu=7", "0", "-"],
    ]
    assert blocks[4][0] == "Running: 1"
    assert [re.split("  +", line.strip()) for line in blocks[4][1:]] == [
        ["ID", "NAME", "OWNER", "COMPONENT", "HOLDS", "STATUS", "RUNS"],
        [holds[-6:], "python train.py --epochs 9 --data…", "ana@gpu-01", "step_operator/research", "gpu=7", "allocated", "0s"],
    ]
    assert blocks[5][0] == "Queue: 1"
    assert [re.split("  +", line.strip()) for line in blocks[5][1:]] == [
        ["ID", "NAME", "OWNER", "COMPONENT", "ASKS", "PLACE", "AGE"],
        [waits[-6:], "a b", "-", "vision", "gpu=3", "1 in gpus", "0s"],
    ]
    whole = poolkeeper("pool", "describe", "gpus", "-o", "json").json
    assert [row["id"] for row in whole["queue"]] == [waits]
    assert [row["id"] for row in whole["running"]] == [holds]
    assert [row["name"] for row in whole["groups"]] == ["lab"]
    assert poolkeeper("pool", "describe", "gpus", "-o", "name").line == "gpus"


def test_requests_of_a_pool(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=1")
    poolkeeper("policy", "attach", "gpus", "team")
    ids = [poolkeeper("request", "submit", "--component", "team", "--resource", "gpu=1", "-o", "name").line for _ in range(4)]
    assert poolkeeper("pool", "requests", "gpus", "-o", "name").out.split() == ids[1:]
    assert poolkeeper("pool", "requests", "gpus", "--view", "active", "-o", "name").out.split() == ids[:1]
    assert set(poolkeeper("pool", "requests", "gpus", "--view", "all", "-o", "name").out.split()) == set(ids)
    first_two = poolkeeper("pool", "requests", "gpus", "--limit", "2")
    assert [line[:10] for line in table(first_two.out)[1:]] == [
        [ids[1][-6:], "-", "-", "team", "gpu=1", "queued", "-", "1", "in", "gpus"],
        [ids[2][-6:], "-", "-", "team", "gpu=1", "queued", "-", "2", "in", "gpus"],
    ]
    assert first_two.err == "there are more than 2; --limit 0 lists all\n"
    assert poolkeeper("pool", "requests", "gpus", "--limit", "3").err == ""
    assert poolkeeper("pool", "delete", "gpus", ends=ExitCode.REFUSED).err.startswith("poolkeeper: ")


def test_a_policy_from_its_making_to_its_end(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8,mcpu=1000")
    terms = ("--priority", "10", "--reserved", "gpu=4", "--limit", "gpu=6")
    assert poolkeeper("policy", "attach", "gpus", "team", *terms).line == (
        "attached team to pool gpus: priority 10, reserved gpu=4, limit gpu=6"
    )
    refused = poolkeeper("policy", "attach", "gpus", "team", ends=ExitCode.REFUSED)
    assert refused.err.splitlines()[0] == "poolkeeper: pool gpus already has a policy for team"
    assert "policy update" in refused.err
    assert "--replace" in refused.err
    poolkeeper("policy", "update", "gpus", "team", "--reserved", "gpu=2,mcpu=500")
    document = poolkeeper("policy", "show", "gpus", "team", "-o", "json").json
    assert (document["priority"], document["reserved"], document["limit"]) == (10, {"gpu": 2, "mcpu": 500}, {"gpu": 6})
    poolkeeper("policy", "update", "gpus", "team", "--limit", "gpu=none", "--reserved", "mcpu=none", "--weight", "3")
    document = poolkeeper("policy", "show", "gpus", "orchestrator/team", "-o", "json").json
    assert (document["priority"], document["reserved"], document["limit"], document["weight"]) == (10, {"gpu": 2}, {}, 3)
    poolkeeper("policy", "attach", "gpus", "team", "--replace", "--priority", "1")
    document = poolkeeper("policy", "show", "gpus", "team", "-o", "json").json
    assert (document["priority"], document["reserved"], document["weight"]) == (1, {}, 1)
    assert "Priority:    1\n" in poolkeeper("policy", "show", "gpus", "team").out
    assert poolkeeper("policy", "detach", "gpus", "team").line == "detached team from pool gpus"
    assert poolkeeper("policy", "list", "gpus", "-o", "name").out == ""


def test_a_policy_that_cannot_be_is_refused_with_the_numbers(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    refused = poolkeeper("policy", "attach", "gpus", "team", "--reserved", "gpu=9", ends=ExitCode.REFUSED)
    assert refused.err.count("\n") == 1
    assert "9" in refused.err
    assert "8" in refused.err


def test_types_of_components(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    poolkeeper("policy", "attach", "gpus", "team")
    poolkeeper("policy", "attach", "gpus", "team", "--type", "step_operator", "--priority", "5")
    assert poolkeeper("policy", "list", "gpus", "-o", "name").out.split() == ["step_operator/team", "team"]
    assert poolkeeper("policy", "show", "gpus", "step_operator/team", "-o", "json").json["priority"] == 5
    poolkeeper("policy", "detach", "gpus", "step_operator/team")
    assert poolkeeper("policy", "list", "gpus", "-o", "name").out.split() == ["team"]


def test_policies_of_a_component_in_all_pools(poolkeeper: Program) -> None:
    for pool in ("a", "b", "c"):
        poolkeeper("pool", "create", pool, "--capacity", "gpu=8")
    poolkeeper("policy", "attach", "a", "team")
    poolkeeper("policy", "attach", "b", "team", "--priority", "5")
    listed = poolkeeper("policy", "list", "--component", "team")
    assert [line[:3] for line in table(listed.out)] == [
        ["POOL", "COMPONENT", "PRIORITY"],
        ["b", "team", "5"],
        ["a", "team", "0"],
    ]
    assert set(poolkeeper("policy", "list", "--component", "team", "-o", "name").out.split()) == {"a", "b"}


def test_groups(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    assert poolkeeper("group", "create", "gpus", "lab", "--reserved", "gpu=4").line == "created group lab in pool gpus"
    poolkeeper("group", "create", "gpus", "vision", "--parent", "lab", "--limit", "gpu=6", "--weight", "2")
    poolkeeper("group", "create", "gpus", "audio", "--parent", "lab")
    poolkeeper("group", "create", "gpus", "zoo")
    again = poolkeeper("group", "create", "gpus", "lab", ends=ExitCode.REFUSED)
    assert again.err.splitlines() == ["poolkeeper: pool gpus already has a group lab", "  `group update` changes it"]
    tree = poolkeeper("group", "list", "gpus").out.splitlines()
    assert [line[:10].rstrip() for line in tree] == ["GROUP", "lab", "  audio", "  vision", "zoo"]
    poolkeeper("group", "update", "gpus", "vision", "--reserved", "gpu=1")
    document = poolkeeper("group", "show", "gpus", "vision", "-o", "json").json
    assert (document["parent"], document["reserved"], document["limit"], document["weight"]) == (
        "lab",
        {"gpu": 1},
        {"gpu": 6},
        2,
    )
    poolkeeper("group", "update", "gpus", "vision", "--no-parent")
    assert poolkeeper("group", "show", "gpus", "vision", "-o", "json").json["parent"] is None
    assert "Limit:       gpu=6" in poolkeeper("group", "show", "gpus", "vision").out
    assert poolkeeper("group", "delete", "gpus", "vision").line == "deleted group vision of pool gpus"
    assert poolkeeper("group", "list", "gpus", "-o", "name").out.split() == ["lab", "audio", "zoo"]


def test_settings_of_a_pool_of_fair_share(poolkeeper: Program) -> None:
    message = ("discipline=fair_share", "starvation_timeout_s=1m", "non_preemptible_usage_threshold=gpu=2", "over_limit=none")
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8", *(word for item in message for word in ("--setting", item)))
    settings = poolkeeper("pool", "describe", "gpus", "-o", "json").json["settings"]
    assert (settings["discipline"], settings["starvation_timeout_s"], settings["backoff_s"]) == ("fair_share", 60, None)
    assert (settings["non_preemptible_usage_threshold"], settings["over_limit"]) == ({"gpu": 2}, None)
    changed = "discipline=fair_share starvation_timeout_s=60 non_preemptible_usage_threshold=gpu=2"
    short = poolkeeper("pool", "describe", "gpus").out
    assert f"Settings: {changed}; the others are defaults (--settings)\n" in short
    assert "backoff_s" not in short
    lines = [line.split() for line in poolkeeper("pool", "describe", "gpus", "--settings").out.splitlines()]
    as_discipline = ["(as", "the", "discipline)"]
    assert ["backoff_s", "5", *as_discipline, "5", *as_discipline] in lines
    assert ["over_limit", "evict", *as_discipline, "evict", *as_discipline] in lines
    assert ["starvation_timeout_s", "60", "30"] in lines
    assert changed in poolkeeper("pool", "list", "-o", "wide").out
    poolkeeper("pool", "update", "gpus", "--setting", "non_preemptible_usage_threshold=none", "--setting", "backoff_s=0")
    settings = poolkeeper("pool", "describe", "gpus", "-o", "json").json["settings"]
    assert (settings["non_preemptible_usage_threshold"], settings["backoff_s"], settings["starvation_timeout_s"]) == ({}, 0, 60)
    assert "backoff_s=0 " in poolkeeper("pool", "list", "-o", "wide").out
    refused = poolkeeper("pool", "update", "gpus", "--setting", "fair_share_tolerance=1.5", ends=ExitCode.USAGE)
    assert "--setting fair_share_tolerance: must be at most 1" in refused.err
    refused = poolkeeper("pool", "update", "gpus", "--setting", "non_preemptible_usage_threshold=tpu=1", ends=ExitCode.REFUSED)
    assert refused.err == "poolkeeper: non_preemptible_usage_threshold of the pool has 1 of tpu; the pool has no tpu\n"


def test_settings_of_a_policy(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    poolkeeper("policy", "attach", "gpus", "plain")
    assert "SETTINGS" not in poolkeeper("policy", "list", "gpus", "-o", "wide").out
    assert "Settings" not in poolkeeper("policy", "show", "gpus", "plain").out
    message = ("--setting", "starvation_timeout_s=2m", "--setting", "fair_share_tolerance=0.5")
    made = poolkeeper("policy", "attach", "gpus", "team", "--priority", "1", *message).line
    assert made == "attached team to pool gpus: priority 1, fair_share_tolerance=0.5 starvation_timeout_s=120"
    more = ("--setting", "fair_share_tolerance=none", "--setting", "non_preemptible_usage_threshold=gpu=2")
    poolkeeper("policy", "update", "gpus", "team", *more)
    document = poolkeeper("policy", "show", "gpus", "team", "-o", "json").json
    assert (document["priority"], document["settings"]) == (
        1,
        {"starvation_timeout_s": 120, "non_preemptible_usage_threshold": {"gpu": 2}},
    )
    poolkeeper("policy", "update", "gpus", "team", "--weight", "2")
    shown = "starvation_timeout_s=120 non_preemptible_usage_threshold=gpu=2"
    assert f"Settings:    {shown}\n" in poolkeeper("policy", "show", "gpus", "team").out
    for listed in ("policy list gpus", "policy list --component team", "pool describe gpus"):
        assert shown in poolkeeper(*listed.split()).out
    ended = ("--setting", "starvation_timeout_s=none", "--setting", "non_preemptible_usage_threshold=none")
    poolkeeper("policy", "update", "gpus", "team", *ended)
    assert poolkeeper("policy", "show", "gpus", "team", "-o", "json").json["settings"] == {}
    wrong = poolkeeper("policy", "update", "gpus", "team", "--setting", "queueing=strict", ends=ExitCode.USAGE)
    assert "--setting queueing: is not a field here" in wrong.err


def test_the_mode_and_settings_of_a_group(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    poolkeeper("group", "create", "gpus", "lab")
    assert "MODE" not in poolkeeper("group", "list", "gpus").out
    poolkeeper("group", "create", "gpus", "sweeps", "--mode", "fifo", "--setting", "aggressive_starvation=true")
    document = poolkeeper("group", "show", "gpus", "sweeps", "-o", "json").json
    assert (document["mode"], document["settings"]) == ("fifo", {"aggressive_starvation": True})
    poolkeeper("group", "update", "gpus", "sweeps", "--setting", "over_limit=keep")
    lines = poolkeeper("group", "show", "gpus", "sweeps").out
    assert "Mode:        fifo\nSettings:    over_limit=keep aggressive_starvation=true\n" in lines
    for listed in ("group list gpus", "pool describe gpus"):
        out = poolkeeper(*listed.split()).out
        assert "over_limit=keep aggressive_starvation=true" in out
        assert ["fair_share", "-"] in [line.split()[-2:] for line in out.splitlines()]
    poolkeeper("group", "update", "gpus", "sweeps", "--mode", "fair_share", "--setting", "aggressive_starvation=none")
    document = poolkeeper("group", "show", "gpus", "sweeps", "-o", "json").json
    assert (document["mode"], document["settings"]) == ("fair_share", {"over_limit": "keep"})
    twice = ("--setting", "over_limit=keep", "--setting", "over_limit=evict")
    wrong = poolkeeper("group", "update", "gpus", "sweeps", *twice, ends=ExitCode.USAGE)
    assert "--setting: over_limit is given twice" in wrong.err


def test_names_that_are_near_are_suggested(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    poolkeeper("policy", "attach", "gpus", "vision")
    poolkeeper("group", "create", "gpus", "lab")
    for words, hint in {
        "pool describe gpsu": "did you mean gpus?",
        "policy attach gpsu team": "did you mean gpus?",
        "policy show gpus vison": "did you mean vision?",
        "policy detach gpus absent": "existing names: vision",
        "group show gpus lob": "did you mean lab?",
        "policy attach gpus team --group lob": "did you mean lab?",
        "group create gpus audio --parent lob": "did you mean lab?",
        "pool requests zzz": "existing names: gpus",
    }.items():
        lines = poolkeeper(*words.split(), ends=ExitCode.NOT_FOUND).err.splitlines()
        assert lines[0].startswith("poolkeeper: there is no ")
        assert lines[1:] == [f"  {hint}"]


def test_the_workspace(poolkeeper: Program) -> None:
    assert poolkeeper("workspace", "show").out.splitlines() == [
        f"Workspace: {poolkeeper.workspace}",
        "Settings:  unmanaged=reject",
        "OF         LIMIT         USED  AT MOST     %",
        "workspace  max_waiting   0     100000      0%",
        "workspace  max_shapes    0     10000       0%",
        "workspace  max_running   0     100000      0%",
        "workspace  max_pools     0     200         0%",
        "workspace  max_policies  0     10000       0%",
        "workspace  max_ended     0     1000000     0%",
        "workspace  max_bytes     0     1073741824  0%",
    ]
    assert poolkeeper("workspace", "update", "--setting", "unmanaged=allow").line.endswith("unmanaged=allow")
    free = poolkeeper("request", "submit", "--component", "unmanaged", "--resource", "gpu=1000")
    assert "allocated, tied to no pool, under fence 1" in free.out


def test_limits_of_a_workspace_and_of_a_component(poolkeeper: Program) -> None:
    changed = poolkeeper(
        "workspace", "update", "--setting", "max_waiting=1", "--setting", "max_bytes=none",
        "--component-limit", "team:max_waiting=0,max_shapes=2", "--component-limit", "x/other:max_shapes=3",
    )  # fmt: skip
    assert changed.line.endswith(": max_waiting=1 max_bytes=none")
    assert (
        poolkeeper("workspace", "update", "--component-limit", "x/other:none").line
        == f"updated workspace {poolkeeper.workspace}"
    )
    lines = poolkeeper("workspace", "show").out.splitlines()
    assert [
        " ".join(line.split()) for line in lines if "max_waiting" in line or "max_bytes" in line or "max_shapes" in line
    ] == [
        "workspace max_waiting 0 1 0%",
        "workspace max_shapes 0 10000 0%",
        "workspace max_bytes 0 none -",
        "orchestrator/team max_waiting 0 0 -",
        "orchestrator/team max_shapes 0 2 0%",
    ]


@pytest.mark.parametrize("limit", ["team", "team:", "a b:max_waiting=1", "team:max_waiting"])
def test_a_limit_that_is_none(poolkeeper: Program, limit: str) -> None:
    poolkeeper("workspace", "update", "--component-limit", limit, ends=2)
    poolkeeper("workspace", "update", ends=2)


def test_a_template_and_its_policies(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8")
    assert poolkeeper("policy", "attach", "gpus", "intern/*", "--limit", "gpu=1").line == (
        "attached intern/* to pool gpus: priority 0, limit gpu=1"
    )
    poolkeeper("policy", "attach", "gpus", "*", "--setting", "template_max=5", "--setting", "template_idle_s=1h")
    poolkeeper("request", "submit", "--component", "intern/ana", "--resource", "gpu=1")
    listed = [line.split() for line in poolkeeper("policy", "list", "gpus").out.splitlines()]
    assert listed[0][-3:-1] == ["POLICIES", "TEMPLATE"]
    assert {row[0]: row[-3:-1] for row in listed[1:]}["intern/ana"][-1] == "*"
    shown = poolkeeper("policy", "show", "gpus", "intern/*").out
    assert "Policies:    1\n" in shown
    assert "Template:    *\n" in poolkeeper("policy", "show", "gpus", "intern/ana").out
    assert poolkeeper("policy", "show", "gpus", "*", "-o", "json").json["settings"] == {
        "template_max": 5,
        "template_idle_s": 3600,
    }
    refused = poolkeeper("policy", "attach", "gpus", "a*b", ends=ExitCode.USAGE)
    assert "a template ends with its only *" in refused.err
    refused = poolkeeper("policy", "detach", "gpus", "intern/*", ends=ExitCode.REFUSED)
    assert refused.err == ("poolkeeper: policy intern/ana of template intern/* is in use: 0 queued, 1 active\n")
    assert poolkeeper("policy", "detach", "gpus", "*").line == "detached * from pool gpus"
