"""The commands of both programs, from their argument parsers: usage, help, options and examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import click
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.main import main as poolkeeper

from app.cli.main import main as poolkeeperd
from tests.support.reference_pages.markdown import block, first_sentence, table

HELP_OPTIONS = ["-h", "--help"]
"""The options for help. A command keeps those of the first context that it sees."""
_EXTRA = re.compile(r"\s*\[((?:required|default: |env var: |-?\d|x[<>])[^\]]*)\]$")
_RANGE = re.compile(r"(?:(-?[\d.]+)<=)?x(?:<=(-?[\d.]+)|>=(-?[\d.]+))?")
_OPTION = re.compile(r"(`[^`]*`)|(--[A-Za-z][\w-]*(?:=[^\s,.;)]+| (?:N\b|\d+\b|\w+=\w+))?|\bPOOLKEEPER_[\w*]+)")


@dataclass(frozen=True)
class Command:
    """A command with its whole name, such as `poolkeeper pool create`."""

    name: str
    click_command: click.Command

    @property
    def context(self) -> click.Context:
        """Return a context in which the help is made."""
        return click.Context(self.click_command, info_name=self.name, help_option_names=HELP_OPTIONS)

    @property
    def usage(self) -> str:
        """Return the usage line."""
        return " ".join([self.name, *self.click_command.collect_usage_pieces(self.context)])

    @property
    def summary(self) -> str:
        """Return the first sentence of the help."""
        return first_sentence((self.click_command.help or "").split("\n\n")[0])

    @property
    def options(self) -> list[click.Option]:
        """Return its options, without those that every verb has."""
        general = getattr(self.click_command, "global_options", [])
        params = self.click_command.params
        return [param for param in params if isinstance(param, click.Option) and param not in general and not param.hidden]


def commands() -> Iterator[Command]:
    """Yield every command of both programs, in the order of their help."""
    for name, program in (("poolkeeper", poolkeeper), ("poolkeeperd", poolkeeperd)):
        yield from _below(name, program)


def _below(name: str, command: click.Command) -> Iterator[Command]:
    if not isinstance(command, click.Group):
        yield Command(name, command)
        return
    context = click.Context(command, help_option_names=HELP_OPTIONS)
    for word in command.list_commands(context):
        child = command.get_command(context, word)
        assert child
        yield from _below(f"{name} {word}", child)


def section(command: Command) -> str:
    """Return the section of a command."""
    parts = [
        f"## {command.name}",
        block("text", command.usage),
        *_help(command),
        option_table(command.options, command.context),
    ]
    if isinstance(command.click_command, VerbCommand) and command.click_command.example:
        lines = [line.strip() for line in command.click_command.example.strip().splitlines()]
        parts.append(block("sh", "\n".join(lines)))
    return "\n\n".join(part for part in parts if part)


def _help(command: Command) -> Iterator[str]:
    """Yield the paragraphs of the help; one whose lines are kept is a block."""
    for paragraph in (command.click_command.help or "").split("\n\n"):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if lines and lines[0].strip() == "\b":
            text = "\n".join(line.removeprefix("    ") for line in lines[1:])
            yield block("sh" if _is_script(lines[1:]) else "text", text)
        elif lines:
            yield marked(" ".join(" ".join(lines).split()))


def _is_script(lines: list[str]) -> bool:
    return all(re.match(r"\s*(poolkeeperd? |[A-Z_]+=)", line) for line in lines)


def option_table(options: list[click.Option], context: click.Context) -> str:
    """Return the table of options."""
    return table(["option", "meaning"], (_row(option, context) for option in options))


def _row(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    assert record
    words, text = record
    words = words.replace("INTEGER RANGE", "N").replace("FLOAT RANGE", "N").replace(" INTEGER", " N")
    extra = _EXTRA.search(text)
    notes = [_note(part) for part in extra[1].split("; ")] if extra else []
    text = text[: extra.start()] if extra else text
    return [f"`{words}`", " ".join([marked(text.strip()), *notes])]


def marked(text: str) -> str:
    """Return the text with options and variables as code."""
    return _OPTION.sub(lambda match: match[1] or f"`{match[2]}`", text)


def _note(extra: str) -> str:
    """Return what click says of an option behind its text, as a sentence."""
    if extra.startswith("env var: "):
        return f"Variable: `{extra.removeprefix('env var: ')}`."
    if extra.startswith("default: "):
        return f"Default: `{extra.removeprefix('default: ')}`."
    if match := _RANGE.fullmatch(extra):
        least, most = match[1] or match[3], match[2]
        return f"From {least} to {most}." if most else f"At least {least}."
    return f"{extra.capitalize()}."
