"""The reference pages of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import click
from poolkeeper import variable_names
from poolkeeper.cli import exit_codes as client_exit_codes
from poolkeeper.cli import options as client_options
from poolkeeper.cli.request_ids import MIN_FRAGMENT

from app.cli import exit_codes as service_exit_codes
from tests.support.doc_pages import anchor_of
from tests.support.reference_pages.cli_commands import Command, commands, marked, option_table, section
from tests.support.reference_pages.markdown import page, table


@dataclass(frozen=True)
class CliTopic:
    """A page of the reference of the command line."""

    name: str
    """The file, without the suffix."""
    title: str
    purpose: str
    beginnings: tuple[str, ...]
    """The beginnings of the names of its commands."""


CLI_TOPICS = (
    CliTopic("requests", "CLI: requests", "Submit, watch, explain, hold and end requests.", ("poolkeeper request",)),
    CliTopic(
        "run", "CLI: run and checkpoint", "Run a command while it holds units.", ("poolkeeper run", "poolkeeper checkpoint")
    ),
    CliTopic("pools", "CLI: pools", "Create, read, change and delete pools.", ("poolkeeper pool ",)),
    CliTopic(
        "policies",
        "CLI: policies and groups",
        "Connect components to pools, and group them.",
        ("poolkeeper policy", "poolkeeper group"),
    ),
    CliTopic(
        "declaration",
        "CLI: plan, apply and export",
        "Keep all pools in a file.",
        ("poolkeeper plan", "poolkeeper apply", "poolkeeper export"),
    ),
    CliTopic(
        "workspace",
        "CLI: top, events, workspace and login",
        "Watch a workspace, change its settings, and sign in.",
        tuple(f"poolkeeper {word}" for word in ("top", "events", "workspace", "whoami", "login", "logout", "completion")),
    ),
    CliTopic("poolkeeperd", "CLI: poolkeeperd", "Run and look after the service.", ("poolkeeperd",)),
)


def _topic_of(command: Command) -> CliTopic:
    (topic,) = [topic for topic in CLI_TOPICS if _has(topic, command)]
    return topic


def _has(topic: CliTopic, command: Command) -> bool:
    return any(f"{command.name} ".startswith(f"{beginning.strip()} ") for beginning in topic.beginnings)


def cli_topic_page(topic: CliTopic) -> str:
    """Return a page with the commands of a topic."""
    own = [command for command in commands() if _has(topic, command)]
    general = (
        "Every command also takes the [global options](../cli.md#global-options)."
        if topic.name != "poolkeeperd"
        else "The settings of the service are on [another page](../settings.md)."
    )
    return page(
        topic.title,
        f"{topic.purpose} {general} [Exit codes](../cli.md#exit-codes) are the same for all commands.",
        "the argument parsers",
        *map(section, own),
    )


def cli_page() -> str:
    """Return the first page: all commands, global options, exit codes, variables."""
    root = click.Context(click.Command("poolkeeper"))
    return page(
        "Command line",
        "This page lists the commands, exit codes and variables of `poolkeeper`, the client of the [HTTP API](http.md), and of "
        "`poolkeeperd`, the service. Each command has `--help`.",
        "the argument parsers, the exit codes and the variable names",
        "## Commands",
        table(["command", "for"], (_index_row(command) for command in commands())),
        "## Global options",
        "Options of `poolkeeper`, before or after the verb. `poolkeeperd` has none of them.",
        option_table(client_options.root_options(), root),
        "## Values",
        table(["value", "form"], VALUES),
        "## Exit codes",
        "Of `poolkeeper`. `poolkeeper run` exits as its command does; a command that a signal ended gives 128 and the number "
        "of the signal.",
        table(["code", "meaning"], ([str(code.value), text] for code, text in client_exit_codes.MEANINGS.items())),
        "Of `poolkeeperd`:",
        table(["code", "meaning"], ([str(code.value), text] for code, text in service_exit_codes.MEANINGS.items())),
        "## Environment variables",
        "An option overrides a variable, and a variable overrides what `poolkeeper login` stored. A variable that begins with "
        "`POOLKEEPER_` and is unknown is refused with exit code 2. The variables of the service are [settings](settings.md).",
        table(["variable", "meaning"], _variables(variable_names.CLIENT)),
        "`poolkeeper run` sets these variables for its command, and `POOLKEEPER_AMOUNT_<KEY>` for each amount:",
        table(["variable", "meaning"], _variables(variable_names.RUN)),
    )


VALUES = (
    ("`COMPONENT`", "`NAME` is a component of the type `orchestrator`; others are `TYPE/NAME`."),
    ("`DURATION`", "Seconds, or numbers with units: `90`, `10m`, `1h30m`, `7d`. `none`, where it is allowed: no bound."),
    ("`KEY=UNITS`", "Whole units of a resource key: `gpu=2,mcpu=4000`. The form `--gpu 2` is the same."),
    ("`REQUEST`", f"An id, or at least {MIN_FRAGMENT} characters of its beginning or end, or `--last`."),
)
"""Forms of values that many commands take."""


def _index_row(command: Command) -> list[str]:
    return [f"[`{command.name}`](cli/{_topic_of(command).name}.md#{anchor_of(command.name)})", marked(command.summary)]


def _variables(texts: Mapping[str, str]) -> list[list[str]]:
    return [[f"`{variable_names.PREFIX}{name}`", text] for name, text in texts.items()]
