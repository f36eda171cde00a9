"""`poolkeeper plan`, `apply` and `export`: a file and the real service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from poolkeeper.cli import declaration_files
from poolkeeper.cli.exit_codes import ExitCode

from app.domain.names import KEY_PATTERN, PATTERN_TEXTS
from tests.support.cli_program import Program

PAPER = """\
pools:
  - name: gpus
    description: "The lab's: 8 of them"
    capacity: {gpu: 8, mcpu: 64000}
    settings:
      queueing: strict
      fair_share_tolerance: 0.75
      non_preemptible_usage_threshold: {gpu: 1, mcpu: 500}
    groups:
      - name: lab
        reserved: {gpu: 4}
        mode: fifo
        settings:
          starvation_timeout_s: 60
          non_preemptible_usage_threshold: {gpu: 2}
      - name: vision
        parent: lab
        reserved: {gpu: 2}
        weight: 2
    policies:
      - component: team
        priority: 10
        reserved: {gpu: 2}
        limit: {gpu: 6}
        group: vision
      - component: team
        component_type: step_operator

  - name: seats
    capacity: {seat: 3}
"""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "pools.yaml"
    path.write_text(PAPER)
    return path


def test_apply_makes_it_so_and_a_second_time_changes_nothing(poolkeeper: Program, paper: Path) -> None:
    planned = poolkeeper("plan", "-f", str(paper), "--exit-code", ends=ExitCode.CHANGES)
    assert planned.out.splitlines()[0] == "+ pool gpus"
    assert "+ policy gpus/" in planned.out
    assert poolkeeper("pool", "list", "-o", "name").out == ""
    poolkeeper("plan", "-f", str(paper))
    done = poolkeeper("apply", "--yes", "-f", str(paper))
    assert done.out.splitlines()[:-1] == planned.out.splitlines()[:-1]
    assert done.out.splitlines()[-1] == "done: " + planned.out.splitlines()[-1]
    assert poolkeeper("plan", "-f", str(paper), "--exit-code").line == "nothing to change"
    assert poolkeeper("apply", "--yes", "-f", str(paper)).line == "nothing to change"
    assert poolkeeper("policy", "show", "gpus", "team", "-o", "json").json["group"] == "vision"
    assert poolkeeper("pool", "list", "-o", "name").out.split() == ["gpus", "seats"]


def test_apply_without_a_terminal_wants_yes(poolkeeper: Program, paper: Path) -> None:
    for pools in ([], ["gpus", "seats"]):  # also if there is nothing to change: a script fails at its first run, or never
        refused = poolkeeper("apply", "-f", str(paper), ends=ExitCode.USAGE)
        assert refused.out == ""
        assert refused.err.splitlines()[0] == (
            "poolkeeper: apply needs a terminal to ask, or --yes to apply without asking; nothing was changed"
        )
        assert poolkeeper("pool", "list", "-o", "name").out.split() == pools
        poolkeeper("apply", "-f", str(paper), "--yes")
    poolkeeper("apply", "-f", str(paper), "-o", "json", ends=ExitCode.USAGE)


def test_what_is_exported_is_what_a_person_wrote(poolkeeper: Program, paper: Path) -> None:
    poolkeeper("apply", "--yes", "-f", "-", feed=PAPER)
    written = poolkeeper("export").out
    assert written.startswith(f"# yaml-language-server: $schema={poolkeeper.url}/api/v1/pools.schema.json\npools:\n")
    assert yaml.safe_load(written) == poolkeeper("export", "-o", "json").json
    assert "    capacity: {gpu: 8, mcpu: 64000}\n" in written
    assert "        mode: fifo\n        settings:\n          starvation_timeout_s: 60\n" in written
    assert "      fair_share_tolerance: 0.75\n      non_preemptible_usage_threshold: {gpu: 1, mcpu: 500}\n" in written
    assert "          non_preemptible_usage_threshold: {gpu: 2}\n" in written
    assert "\n\n  - name: seats\n    capacity: {seat: 3}\n" in written
    assert "\n\n" not in written.split("\n\n  - name: seats")[0]
    assert poolkeeper("plan", "-f", "-", "--prune", feed=written).line == "nothing to change"
    assert poolkeeper("export", "-o", "name").out.split() == ["gpus", "seats"]


def test_changes_are_told_with_their_numbers(poolkeeper: Program, paper: Path) -> None:
    poolkeeper("apply", "--yes", "-f", str(paper))
    paper.write_text(PAPER.replace("gpu: 8", "gpu: 16").split("  - name: seats")[0])
    changed = poolkeeper("plan", "-f", str(paper))
    assert changed.out.splitlines()[:2] == ["~ pool gpus", "    capacity gpu: 8 -> 16"]
    assert "seats" not in changed.out
    pruned = poolkeeper("plan", "-f", str(paper), "--prune", "-o", "json").json
    assert {(change["action"], change["pool"]) for change in pruned["changes"]} == {("update", "gpus"), ("delete", "seats")}
    assert poolkeeper("apply", "--yes", "-f", str(paper), "--prune", "-o", "name").out.split() == [
        change["pool"] for change in pruned["changes"]
    ]
    assert poolkeeper("pool", "list", "-o", "name").out.split() == ["gpus"]


def test_what_the_rules_forbid_changes_nothing(poolkeeper: Program, paper: Path) -> None:
    paper.write_text(PAPER.replace("reserved: {gpu: 2}", "reserved: {gpu: 5}"))
    assert "gpu: 5" in paper.read_text()
    refused = poolkeeper("apply", "--yes", "-f", str(paper), ends=ExitCode.REFUSED)
    assert refused.err.startswith("poolkeeper: ")
    assert poolkeeper("pool", "list", "-o", "name").out == ""


def test_amounts_may_be_written_as_on_the_command_line(poolkeeper: Program) -> None:
    poolkeeper("apply", "--yes", "-f", "-", feed="pools:\n- {name: p, capacity: 'gpu=8,mcpu=1000'}\n")
    assert poolkeeper("pool", "describe", "p", "-o", "json").json["capacity"] == {"gpu": 8, "mcpu": 1000}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stdin is empty; `pools: []` says that there are none"),
        ("# nothing yet\n", "stdin is empty"),
        ("- gpus\n", "stdin: line 1: expected `pools:` with a list of pools, not a list"),
        ("gpus", "stdin: line 1: expected `pools:` with a list of pools, not a text"),
        ("8", "stdin: line 1: expected `pools:` with a list of pools, not a number"),
        ("name: p\ncapacity: {gpu: 1}\n", "expected `pools:` with a list of pools, not `name`, `capacity`"),
        ("pool: []\n", "expected `pools:` with a list of pools, not `pool`"),
        ("\npools:\n  lab: {capacity: {gpu: 1}}\n", "each pool has a line such as `- name: lab` (line 2)"),
        ("pools: [\n", "stdin: line 2: "),
        ("pools:\n- name: a\n gpu: 2\n", "stdin: line 3: its indentation does not match the lines above: expected "),
        ("pools: []\npools: []\n", "stdin: line 1: pools is given twice"),
        ("pools:\n- name: a\n  capacity: {gpu: 1, gpu: 2}\n", "stdin: line 3: gpu is given twice"),
        ("a: 1\n---\nb: 2\n", "stdin: line 2: "),
        (
            "pools:\n- name: a\n  description: 2026-01-31\n",
            "stdin: pool a: description is 2026-01-31, which no field takes; a text needs quotes (line 3)",
        ),
        ("pools:\n- name: a\n  capacity: gpu=1.5\n", "stdin: pool a: capacity.gpu must be a whole number, not 1.5 (line 3)"),
        ("pools: !!python/object/apply:os.getcwd []\n", "stdin: line 1: "),
        ("pools: .inf\n", "stdin: pools is inf, which no field takes"),
        ("pools:\n- &a [*a]\n", "stdin: line 2: "),
        ("\x07", "stdin is not YAML"),
    ],
)
def test_what_is_no_declaration_is_told_in_a_line(poolkeeper: Program, text: str, message: str) -> None:
    ran = poolkeeper("plan", "-f", "-", feed=text, ends=ExitCode.USAGE)
    assert message in ran.err
    assert ran.err.count("\n") == 1


WRONG = """\
pools:
  - name: gpus
    capacty: {gpu: 8}
    capacity: {gpu: 8}
    groups:
      - {name: lab, weigth: 2}
    policies:
      - component: team
      - component: team
        component_type: step_operator
        reserved:
          gpu: -1
  - capacity: {GPU: 1}
pool: []
"""


def test_everything_that_is_wrong_is_told_where_it_is(poolkeeper: Program, tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(WRONG)
    for verb in ("plan", "apply --yes"):
        first, *rest = poolkeeper(*verb.split(), "-f", str(path), ends=ExitCode.USAGE).err.splitlines()
        assert first.startswith("poolkeeper: ")
        assert {first.removeprefix("poolkeeper: "), *(line.removeprefix("  ") for line in rest)} == {
            f"{path}: pool gpus: capacty is not a field here; did you mean capacity? (line 3)",
            f"{path}: pool gpus: group lab: weigth is not a field here; did you mean weight? (line 6)",
            f"{path}: pool gpus: policy step_operator/team: reserved.gpu must be at least 0 (line 12)",
            f"{path}: pool number 2: name is required (line 13)",
            f"{path}: pool number 2: capacity.GPU {PATTERN_TEXTS[KEY_PATTERN]} (line 13)",
            f"{path}: pool is not a field here; did you mean pools? (line 14)",
        }


def test_one_fault_is_one_line(poolkeeper: Program) -> None:
    ran = poolkeeper(
        "plan", "-f", "-", feed="pools:\n- {name: p, capacty: {gpu: 1}, capacity: {gpu: 1}}\n", ends=ExitCode.USAGE
    )
    assert ran.err == "poolkeeper: stdin: pool p: capacty is not a field here; did you mean capacity? (line 2)\n"


def test_no_fault_hides_another(poolkeeper: Program) -> None:
    paper = "pools:\n- name: a\n  description: 2026-01-31\n  capacity: gpu=x\n- name: b\n  capacity: gpu\n"
    no_value = "which no field takes; a text needs quotes"
    assert poolkeeper("plan", "-f", "-", feed=paper, ends=ExitCode.USAGE).err.splitlines() == [
        f"poolkeeper: stdin: pool a: description is 2026-01-31, {no_value} (line 3)",
        "  stdin: pool a: capacity.gpu must be a whole number, not x (line 4)",
        "  stdin: pool b: capacity cannot be read: 'gpu' is no amount; write it like gpu=2 (line 6)",
    ]


RULES = """\
pools:
  - name: gpus
    capacity: {gpu: 8}
    groups:
      - name: lab
        reserved: {gpu: 4}
    policies:
      - component: training/team
        group: lab
        reserved:
          gpu: 2
"""


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("gpu: 2\n", "gpu: 9\n", "policy training/team reserves 9 of gpu, more than its limit of 8 (line 11)"),
        ("gpu: 2\n", "gpu: 5\n", "the reserved shares in group lab add up to 5 of gpu; it has 4 to give (line 6)"),
        ("group: lab", "group: lob", "there is no group lob (line 9)"),
        ("gpu: 2\n", "tpu: 2\n", "the pool has no tpu; a policy or a group can only have keys of its pool (line 11)"),
        ("{gpu: 8}", "{gpu: 3}", "group lab reserves 4 of gpu, more than its limit of 3 (line 6)"),
        ("- name: lab", "- {name: lab, parent: lab}\n      - name: x", "group lab would be above itself (line 5)"),
    ],
)
def test_a_broken_rule_is_told_with_file_and_line(
    poolkeeper: Program, tmp_path: Path, before: str, after: str, sentence: str
) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(RULES.replace(before, after, 1))
    for verb in ("plan", "apply --yes"):
        refused = poolkeeper(*verb.split(), "-f", str(path), ends=ExitCode.REFUSED)
        assert refused.err == f"poolkeeper: {path}: pool gpus: {sentence}\n"


def test_what_the_present_use_forbids_is_told_with_file_and_line(poolkeeper: Program, tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(RULES)
    poolkeeper("apply", "--yes", "-f", str(path))
    poolkeeper("request", "submit", "--component", "training/team", "--gpu", "1")
    path.write_text(RULES.replace("{gpu: 8}", "{gpu: 8, tpu: 1}").replace("group: lab", "priority: 1"))
    sentence = f"{path}: pool gpus: policy training/team cannot move to another parent while it holds units (line 8)"
    assert f"applying this would be refused: {sentence}" in poolkeeper("plan", "-f", str(path)).out
    assert poolkeeper("apply", "--yes", "-f", str(path), ends=ExitCode.REFUSED).err == f"poolkeeper: {sentence}\n"
    path.write_text(RULES.split("    policies:")[0])
    in_use = f"{path}: pool gpus: policy training/team is in use: 0 queued, 1 active (line 2)"
    assert poolkeeper("apply", "--yes", "-f", str(path), ends=ExitCode.REFUSED).err == f"poolkeeper: {in_use}\n"


def test_a_setting_that_is_not_there_suggests_one(poolkeeper: Program) -> None:
    file = "pools:\n- name: p\n  capacity: {gpu: 1}\n  settings:\n    patience: 5m\n  policies:\n  - {component: c, type: x}\n"
    assert poolkeeper("plan", "-f", "-", feed=file, ends=ExitCode.USAGE).err.splitlines() == [
        "poolkeeper: stdin: pool p: settings.patience is not a field here; did you mean patience_s? (line 5)",
        "  stdin: pool p: policy c: type is not a field here; did you mean component_type? (line 7)",
    ]
    option = poolkeeper("pool", "create", "p", "--gpu", "1", "--setting", "quueing=strict", ends=ExitCode.USAGE)
    assert "--setting quueing: is not a field here; did you mean queueing?" in option.err


def test_a_component_is_written_with_its_type(poolkeeper: Program) -> None:
    file = "pools: [{name: p, capacity: gpu=4, policies: [{component: training/research, limit: gpu=2}]}]"
    poolkeeper("apply", "--yes", "-f", "-", feed=file)
    assert poolkeeper("policy", "show", "p", "training/research", "-o", "json").json["limit"] == {"gpu": 2}
    assert poolkeeper("plan", "-f", "-", feed=poolkeeper("export").out).line == "nothing to change"
    other = file.replace("limit:", "component_type: batch, limit:")
    refused = poolkeeper("plan", "-f", "-", feed=other, ends=ExitCode.USAGE).err
    assert "has the component_type 'batch', which is not that of training/research" in refused


def test_what_is_wrong_besides_the_file_is_not_told_as_of_the_file(poolkeeper: Program, paper: Path) -> None:
    lines = poolkeeper("plan", "-f", str(paper), "--workspace", "no/name", ends=ExitCode.USAGE).err
    assert str(paper) not in lines
    assert "--workspace" in lines


def test_files_that_cannot_be_read_or_written(poolkeeper: Program, tmp_path: Path) -> None:
    missing = poolkeeper("apply", "--yes", "-f", str(tmp_path / "none.yaml"), ends=ExitCode.USAGE)
    assert missing.err == f"poolkeeper: {tmp_path / 'none.yaml'} cannot be read: No such file or directory\n"
    assert "cannot be read: Is a directory" in poolkeeper("plan", "-f", str(tmp_path), ends=ExitCode.USAGE).err
    (tmp_path / "latin").write_bytes(b"pools: \xe9")
    assert "is not UTF-8 text" in poolkeeper("plan", "-f", str(tmp_path / "latin"), ends=ExitCode.USAGE).err
    poolkeeper("export", "-f", str(tmp_path / "no" / "where"), ends=ExitCode.REFUSED)


def test_a_file_is_not_written_over_unasked(poolkeeper: Program, paper: Path, tmp_path: Path) -> None:
    poolkeeper("apply", "--yes", "-f", str(paper))
    refused = poolkeeper("export", "-f", str(paper), ends=ExitCode.REFUSED)
    assert refused.err.splitlines() == [f"poolkeeper: {paper} exists already", "  --yes overwrites it"]
    assert paper.read_text() == PAPER
    assert poolkeeper("export", "-f", str(paper), "--yes").err == f"wrote {paper}\n"
    assert paper.read_text() == poolkeeper("export").out
    poolkeeper("export", "-f", str(tmp_path / "new.yaml"))


@pytest.mark.parametrize(
    "declared",
    [
        {"pools": []},
        {"pools": [{"name": "a", "capacity": {"gpu": 1}}]},
        {
            "pools": [
                {"name": "yes", "description": "- name: no\n\n  - name: b\n", "capacity": {"on": 1}},
                {"name": "1e3", "capacity": {"a": 2}},
            ]
        },
        {
            "pools": [
                {"name": "a", "description": "x: y # z " * 30, "settings": {"patience_s": None}, "capacity": {"gpu": 2**53 - 1}}
            ]
        },
    ],
)
def test_what_is_written_is_read_again(declared: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "paper"
    path.write_text(declaration_files.to_yaml(declared))
    assert declaration_files.read(str(path)).declaration == declared


def test_a_plan_below_the_use_says_whose_it_is_and_what_becomes_of_it(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--gpu", "4")
    poolkeeper("policy", "attach", "gpus", "team")
    poolkeeper("request", "submit", "--component", "team", "--gpu", "3", "--label", "user=ana")
    smaller = "pools: [{name: gpus, capacity: {gpu: 1}, policies: [{component: team}]}]"
    sentence = (
        "pool gpus: 3 gpu in use, 2 more than its capacity of 1: team 3 (ana). With over_limit=keep, running work stays, "
        "and nothing new is granted there until the use is within the limit."
    )
    assert sentence in poolkeeper("plan", "-f", "-", feed=smaller).out.splitlines()
    changed = poolkeeper("pool", "update", "gpus", "--gpu", "1").out.splitlines()
    assert changed == ["updated pool gpus: gpu=1", sentence]
    assert poolkeeper("plan", "-f", "-", feed=smaller).line == "nothing to change"
    poolkeeper("pool", "update", "gpus", "--gpu", "4")
    lowered = poolkeeper("policy", "update", "gpus", "team", "--limit", "gpu=1").out.splitlines()
    assert lowered[1].startswith("policy gpus/orchestrator/team: 3 gpu in use, 2 more than its limit of 1: team 3 (ana).")
