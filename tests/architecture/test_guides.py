"""The tables of the guides name what the code has: variables, exit codes, verdicts, fields; its numbers hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import MEANINGS, ExitCode
from poolkeeper.client import Client
from poolkeeper.models import Request
from poolkeeper.runner.command_env import command_environment

from app.api.schemas.dry_run import DryRunBody
from app.domain.dry_run import DRY_RUN_REASONS
from app.domain.explanations import WaitReason
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.water_filling import divide
from tests.support.doc_pages import Page
from tests.support.paths import ROOT

RUN_A_COMMAND = Page(ROOT / "docs" / "guides" / "run-a-command.md")
EXPLAIN = Page(ROOT / "docs" / "guides" / "explain-and-dry-run.md")
POOLS_AS_CODE = Page(ROOT / "docs" / "guides" / "pools-as-code.md")
FAIR_SHARE = Page(ROOT / "docs" / "guides" / "fair-share.md")
SCHEMA = json.loads((ROOT / "config" / "pools.schema.json").read_text("utf-8"))


def section(page: Page, title: str) -> str:
    """Return the text below a heading, up to the next one."""
    (text,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page.text, re.M | re.S)
    return str(text)


def first_cells(text: str) -> str:
    """Return the first cells of all rows of the tables of a text."""
    return "\n".join(re.findall(r"^\| (.+?) \|", text, re.M))


def test_the_variables_of_a_command_are_those_that_it_gets() -> None:
    request = Request.from_json({"id": "1", "component": "a", "status": "allocated", "fence": 1, "resources": {"gpu": 2}})
    names = command_environment({}, Client("http://127.0.0.1:1"), request, Path("f"), resume=False, reference=None)
    assert set(re.findall(r"POOLKEEPER_\w+", first_cells(section(RUN_A_COMMAND, "Variables of the command")))) == set(names)


def test_the_exit_codes_of_run_are_all_there_are() -> None:
    codes = {int(code) for code in re.findall(r"^\d+$", first_cells(section(RUN_A_COMMAND, "Exit codes")), re.M)}
    of_all_verbs = set(range(ExitCode.REJECTED)) | {ExitCode.CHANGES}
    assert codes == set(MEANINGS) - of_all_verbs


def test_the_verdicts_are_the_wait_reasons_in_their_order() -> None:
    verdicts = re.findall(r"`(\w+)`", first_cells(section(EXPLAIN, "Why a request waits")))
    assert verdicts == [str(reason) for reason in WaitReason]


def test_the_dry_runs_and_their_failures_are_all_there_are() -> None:
    cells = first_cells(section(EXPLAIN, "What a change would do"))
    fields = {field for row in cells.splitlines() if row.startswith("`") for field in re.findall(r"`(\w+)`", row)}
    assert fields == set(DryRunBody.model_fields)
    assert set(re.findall(r"`dry_run_(\w+)`", cells)) == set(DRY_RUN_REASONS)


def rows_of(kind: str) -> str:
    """Return the rows of the table of the fields of a pool, group or policy."""
    (rows,) = re.findall(rf"^\| field of a {kind} \|.*\n((?:\|.*\n)+)", section(POOLS_AS_CODE, "The file"), re.M)
    return str(rows)


@pytest.mark.parametrize("kind", ["pool", "group", "policy"])
def test_the_fields_of_the_pools_file_are_all_there_are(kind: str) -> None:
    assert set(re.findall(r"`(\w+)`", first_cells(rows_of(kind)))) == set(
        SCHEMA["definitions"][f"{kind.title()}Declaration"]["properties"]
    ), f"correct the table of {POOLS_AS_CODE.name}"


@pytest.mark.parametrize("kind", ["pool", "group", "policy"])
def test_the_settings_of_the_pools_file_are_all_there_are(kind: str) -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", section(POOLS_AS_CODE, "Settings"), re.M)
    settings = {name for names, kinds in rows if kind in kinds.split(", ") for name in re.findall(r"`(\w+)`", names)}
    definition = {"pool": "PoolSettings", "group": "GroupSettings", "policy": "AccountSettings"}[kind]
    assert settings == set(SCHEMA["definitions"][definition]["properties"]), (
        f"correct the table Settings of {POOLS_AS_CODE.name}"
    )


@pytest.mark.parametrize("kind", ["pool", "group", "policy"])
def test_the_defaults_of_the_pools_file_are_those_of_the_schema(kind: str) -> None:
    properties = SCHEMA["definitions"][f"{kind.title()}Declaration"]["properties"]
    cells = {name: cell.strip("`") for name, cell in re.findall(r"^\| `(\w+)` \| (.+?) \|", rows_of(kind), re.M)}
    defaults = {name: properties[name].get("default") for name in cells}
    expected = {name: str(default) or "empty" for name, default in defaults.items() if isinstance(default, (int, str))}
    assert len(expected) >= {"pool": 1, "group": 2, "policy": 4}[kind]
    assert {name: cells[name] for name in expected} == expected


def test_the_pools_file_has_one_field() -> None:
    assert set(SCHEMA["properties"]) == {"pools"}


def leaf(name: str, cell: str) -> Leaf:
    """Return the policy that a cell such as `weight 3, limit 3, asks 8` describes."""
    numbers = {word: int(number) for word, number in re.findall(r"(\w+) (\d+)", cell)}
    reserved, limit = ({"gpu": numbers[word]} if word in numbers else {} for word in ("reserved", "limit"))
    return Leaf(name, weight=numbers["weight"], demand={"gpu": numbers["asks"]}, guarantee=reserved, limit=limit)


def test_the_fair_shares_of_the_guide_are_those_of_the_planner() -> None:
    rows = re.findall(r"^\| .+? \| (weight.+?) \| (weight.+?) \| (.+?) and (.+?) \|$", FAIR_SHARE.text, re.M)
    assert len(rows) == 4
    for alpha, beta, *expected in rows:
        division = divide({"gpu": 8}, Branch("pool", children=(leaf("alpha", alpha), leaf("beta", beta))))
        shares = [division.accounts[name].fair[0] * 8 / division.scale for name in ("alpha", "beta")]
        assert shares == [float(number) for number in expected]
