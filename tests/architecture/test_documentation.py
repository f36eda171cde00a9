"""The documentation holds together: links, anchors, the index, and blocks of code that a program can read."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator

import click
import pytest
import yaml
from poolkeeper import Client, variable_names
from poolkeeper.allocation import Allocation
from poolkeeper.celery.allocation import TaskAllocation
from poolkeeper.cli.amount_options import AmountCommand
from poolkeeper.cli.main import main as poolkeeper

from app.cli.main import main as poolkeeperd
from tests.support.doc_pages import PAGES, Block, Page
from tests.support.paths import ROOT
from tests.support.reference_pages.cli_commands import HELP_OPTIONS

IDS = [page.name for page in PAGES]
PROGRAMS: dict[str, click.Command] = {"poolkeeper": poolkeeper, "poolkeeperd": poolkeeperd}
each_page = pytest.mark.parametrize("page", PAGES, ids=IDS)


@each_page
def test_every_link_leads_to_a_file_and_an_anchor(page: Page) -> None:
    broken = []
    for target in page.links():
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in Page(file).anchors()):
            broken.append(target)
    assert broken == [], "these links lead nowhere"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    reached, ahead = {index}, [index]
    while ahead:
        page = Page(ahead.pop())
        for target in page.links():
            file = (page.path.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file not in reached and ROOT / "docs" in file.parents:
                reached.add(file)
                ahead.append(file)
    assert {page.path for page in PAGES if ROOT / "docs" in page.path.parents} == reached, (
        "add a link to the page in docs/README.md"
    )


@each_page
def test_every_transcript_is_run(page: Page) -> None:
    for block in page.blocks():
        assert block.language != "text" or not re.match(r"\$ poolkeeper", block.text), (
            f"line {block.line}: it is of the language console"
        )
        if block.language == "console":
            assert block.commands(), f"line {block.line} has no command"
        if test := block.markers.get("tested by"):
            assert page.name in (ROOT / test).read_text("utf-8"), f"line {block.line}: {test} does not name the page"
        elif block.language == "console" or block.prints():
            assert page.stage, f"line {block.line}: the page does not say what it runs with"


@each_page
def test_python_uses_members_that_the_client_has(page: Page) -> None:
    """Compare the names alone, as a type checker would need whole programs."""
    for block in page.blocks():
        if block.language == "python":
            for name, member in re.findall(r"\b(client|Client\(\)|allocation)\.(\w+)", block.text):
                kinds = (Allocation, TaskAllocation) if name == "allocation" else (Client,)
                assert any(hasattr(kind, member) or member in _instance_members(kind) for kind in kinds), f"{name}.{member}"


def _instance_members(kind: type) -> set[str]:
    """Return the attributes that the methods of a class set."""
    return set(re.findall(r"\bself\.(\w+)\b[^=\n]*=", inspect.getsource(kind)))


def test_a_print_with_its_output_in_a_comment_is_run_at_any_depth() -> None:
    block = Block(1, "python", "print(1)  # 1\nwith lock:\n    print(2)  # 2\n    print(3)\n")
    assert block.prints() == "1\n2\n"


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("cd /srv && poolkeeper plan -f a.yaml; poolkeeper apply", ["poolkeeper plan -f a.yaml", "poolkeeper apply"]),
        ("poolkeeper export > a.yaml", ["poolkeeper export"]),
        ("id=$(poolkeeper request submit --gpu 2 | tail -1)", ["poolkeeper request submit --gpu 2"]),
        ("poolkeeper run --gpu 1 -- poolkeeper pool list", ["poolkeeper run --gpu 1"]),
        ("sudo -u poolkeeper /opt/poolkeeper/bin/poolkeeperd audit", ["poolkeeperd audit"]),
        ("runuser -u poolkeeper -- /opt/poolkeeper/bin/poolkeeperd audit", ["poolkeeperd audit"]),
    ],
)
def test_every_command_of_a_line_is_checked(line: str, commands: list[str]) -> None:
    assert [shlex.join(words) for words in _commands(line)] == commands


@each_page
def test_every_block_is_of_its_language(page: Page) -> None:
    for block in page.blocks():
        try:
            _parse(block)
        except Exception as error:
            error.add_note(f"{page.name}, the block of line {block.line}")
            raise


def _parse(block: Block) -> None:
    match block.language:
        case "python":
            ast.parse(block.text)
        case "yaml":
            yaml.safe_load(block.text)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=20)
        case "mermaid":
            assert ";" not in block.text, "mermaid ends a message there"
        case language:
            assert language in {"console", "text", "lua", "nginx", "ini", "promql", "http", "css", "make"}


@each_page
def test_every_command_to_copy_exists(page: Page) -> None:
    texts = [
        (f"the block of line {block.line}", block.text if block.language == "sh" else _typed(block.text))
        for block in page.blocks()
        if block.language in ("sh", "text")
    ]
    is_present = page.name != "CHANGELOG.md"  # which names commands of former releases
    spans = [(f"`{span}`", span) for span in page.spans() if is_present and re.match(r"poolkeeperd? ", span)]
    for place, text in [*texts, *spans]:
        for words in _commands(text):
            fault = _fault(words)
            assert fault is None, f"{page.name}, {place}: {shlex.join(words)}: {fault}"


@each_page
def test_every_variable_in_a_block_exists(page: Page) -> None:
    texts = "".join(block.text for block in page.blocks())
    names = set(re.findall(rf"\b{variable_names.PREFIX}(?!{variable_names.AMOUNT}|TEST_)(\w+)", texts))
    assert names - set(variable_names.KNOWN) == set(), "there is no such variable"


def _typed(text: str) -> str:
    """Return the commands of a transcript without their output."""
    return "\n".join(re.findall(r"^\$ (.*)", text, re.M))


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of our programs, without redirections and the command that `run` starts."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # a quotation of several lines
            continue
        for command in _split(words):
            for number, word in enumerate(command):
                program = word.rpartition("/")[2]
                if program in PROGRAMS and (number == 0 or not re.match("-.*[^-]", command[number - 1])):
                    yield [program, *_before(command[number + 1 :])]
                    break


def _split(words: list[str]) -> Iterator[list[str]]:
    """Yield the commands of a line."""
    command: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set("();|&"):
            yield command
            command = []
        else:
            command.append(word)


def _before(words: list[str]) -> list[str]:
    """Return the words before a redirection or `--`."""
    return words[: next((number for number, word in enumerate(words) if word == "--" or set(word) <= set("<>")), len(words))]


def _fault(words: list[str]) -> str | None:
    command, rest = PROGRAMS[words[0]], words[1:]
    names = set(_option_names(command))
    while isinstance(command, click.Group):
        position = next((number for number, word in enumerate(rest) if not word.startswith("-")), None)
        if position is None:
            break
        child = command.get_command(click.Context(command), rest[position])
        if child is None:
            return f"there is no command {rest[position]}"
        command, rest = child, rest[:position] + rest[position + 1 :]
        names |= set(_option_names(command))
    options = [word for word in rest if word.startswith("--") and not _is_amount(command, word, rest)]
    absent = [word for word in options if word.partition("=")[0] not in names]
    return f"there is no option {absent[0]}" if absent else None


def _is_amount(command: click.Command, option: str, words: list[str]) -> bool:
    """True if the option is the amount of a key, as `--gpu 2` or `--seats=3`."""
    _, _, value = option.partition("=")
    following = [*words[words.index(option) + 1 :], ""][0]
    return isinstance(command, AmountCommand) and (value or following).isdecimal()


def _option_names(command: click.Command) -> Iterator[str]:
    context = click.Context(command, help_option_names=HELP_OPTIONS)
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
