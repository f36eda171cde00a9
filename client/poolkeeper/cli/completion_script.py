"""`poolkeeper completion`: the script for a shell; the names in it are asked of the service while you type."""

from __future__ import annotations

import click

from poolkeeper.cli.command_base import Verb

PROGRAM = "poolkeeper"
ADDED = "COMPREPLY+=($value)"
NO_SPACE = "[[ $value == *= ]] && compopt -o nospace"
"""After `gpu=` the amount is to follow, and not a space."""


@click.command(
    "completion",
    cls=Verb,
    example='eval "$(poolkeeper completion bash)"\npoolkeeper completion fish > ~/.config/fish/completions/poolkeeper.fish',
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names in SHELL."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made
    script = made(click.get_current_context().find_root().command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    click.echo(script.replace(ADDED, f"{ADDED}\n            {NO_SPACE}") if shell == "bash" else script)
