"""The documentation holds together: links, anchors, the index, and blocks of code that a program can read."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator

import click
import pytest
import yaml
from poolkeeper.cli.amount_options import AmountCommand
from poolkeeper.cli.main import main as poolkeeper

from app.cli.main import main as poolkeeperd
from tests.support.doc_pages import PAGES, Block, Page
from tests.support.paths import ROOT

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
        if block.language != "console":
            continue
        assert block.commands(), f"line {block.line} has no command"
        if test := block.markers.get("tested by"):
            assert page.name in (ROOT / test).read_text("utf-8"), f"line {block.line}: {test} does not name the page"
        else:
            assert page.stage, f"line {block.line}: the page does not say what it runs with"


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
        case language:
            assert language in {"console", "mermaid", "text", "lua", "nginx", "ini", "promql", "http", "css", "make"}


@each_page
def test_every_command_to_copy_exists(page: Page) -> None:
    for block in page.blocks():
        if block.language == "sh":
            for words in _commands(block.text):
                fault = _fault(words)
                assert fault is None, f"{page.name}, the block of line {block.line}: {shlex.join(words)}: {fault}"


def _commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation of several lines
            continue
        for number, word in enumerate(words):
            program = word.rpartition("/")[2]
            if program in PROGRAMS and (number == 0 or not words[number - 1].startswith("-")):
                rest = _before(words[number + 1 :], {"|", "&&", ";", ">", ">>", "<", "--", "&", "||"})
                yield [program, *rest]
                break


def _before(words: list[str], ends: set[str]) -> list[str]:
    """Return the words before the first of the ends."""
    return words[: next((number for number, word in enumerate(words) if word in ends), len(words))]


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
    context = click.Context(
        command, help_option_names=["-h", "--help"]
    )  # a command keeps the help options of its first context
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
