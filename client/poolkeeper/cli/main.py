"""The entry point: nouns and verbs of the program, and the module of each. The help imports nothing but click."""

from __future__ import annotations

import click

from poolkeeper.cli.command_base import CONTEXT_SETTINGS, RootGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "pool": ("pools", "Named capacities: create, list, describe, update, delete, requests, shares."),
    "policy": ("policies", "Rules by which a component uses a pool: attach, list, show, update, detach."),
    "group": ("groups", "Accounts between a pool and its policies: create, list, show, update, delete."),
    "request": (
        "requests",
        "Requests for units of pools: submit, list, describe, explain, wait, heartbeat, checkpoint, release, cancel, delete.",
    ),
    "run": ("run", "Wait for units, run a command while it holds them, and release them."),
    "checkpoint": ("checkpoint", "Report from a command under `run` that its work is saved: done, progress, failed."),
    "plan": ("declarations", "Show what `apply` would change, and its effect on requests."),
    "apply": ("declarations", "Change pools, groups and policies to what a file declares."),
    "export": ("declarations", "Write pools, groups and policies as a file for `apply`."),
    "top": ("top", "Show pools, policies and queues as they change."),
    "events": ("events", "Print events; with --follow new ones as they happen."),
    "workspace": ("workspaces", "Settings of the whole workspace: show, update."),
    "whoami": ("auth", "Show the caller that the service sees, and its permissions."),
    "login": ("auth", "Check address, token and workspace, and store them for later calls."),
    "logout": ("auth", "Remove what `login` stored."),
    "completion": ("completion_script", "Print the script that completes commands and names in your shell."),
}
"""Name of a command → its module, and its line on the help page."""


def _root() -> RootGroup:
    program = RootGroup(
        "poolkeeper",
        modules=COMMANDS,
        context_settings=CONTEXT_SETTINGS,
        help="Poolkeeper shares scarce capacity between the teams of an ML platform.\n\n"
        "Results go to stdout, messages to stderr. The options of this page may also follow the verb.\n\n"
        "The --help of each verb, such as `poolkeeper request submit --help`, has examples.",
    )
    return click.version_option(package_name="poolkeeper", message="poolkeeper %(version)s")(program)


main = _root()
