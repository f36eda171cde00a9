"""The entry point: nouns and verbs of the program, and the module of each. For its help nothing but click is imported."""

from __future__ import annotations

import click

from poolkeeper.cli.command_base import CONTEXT_SETTINGS, RootGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "pool": ("pools", "Named capacities: create, list, describe, update, delete, requests, shares."),
    "policy": ("policies", "Who may use a pool, and how much: attach, list, show, update, detach."),
    "group": ("groups", "Accounts between a pool and its policies: create, list, show, update, delete."),
    "request": ("requests", "Asks: submit, list, describe, explain, wait, heartbeat, checkpoint, release, cancel, delete."),
    "run": ("run", "Wait for units, run a command as long as it holds them, give them back."),
    "checkpoint": ("checkpoint", "From within such a command, how far the saving of its work is: done, progress, failed."),
    "plan": ("declarations", "Show what `apply` would change, and for whom."),
    "apply": ("declarations", "Make pools, groups and policies what a file says."),
    "export": ("declarations", "Write pools, groups and policies as such a file."),
    "top": ("top", "Pools, policies and queues as they change."),
    "events": ("events", "What happened, as it happens with --follow."),
    "workspace": ("workspaces", "Settings of the whole workspace: show, update."),
    "whoami": ("auth", "Who the service says you are, and what you may."),
    "login": ("auth", "Keep address, token and workspace for the next time."),
    "logout": ("auth", "Forget what `login` kept."),
    "completion": ("completion_script", "Print the script that completes commands and names in your shell."),
}
"""Name of a command → its module, and what the help page says of it."""


def _root() -> RootGroup:
    program = RootGroup(
        "poolkeeper",
        modules=COMMANDS,
        context_settings=CONTEXT_SETTINGS,
        help="Poolkeeper shares scarce capacity between the teams of an ML platform.\n\n"
        "Results go to stdout, messages to stderr. Options of this page may also stand after the verb.\n\n"
        "The --help of each verb, such as `poolkeeper request submit --help`, has examples.",
    )
    return click.version_option(package_name="poolkeeper", message="poolkeeper %(version)s")(program)


main = _root()
