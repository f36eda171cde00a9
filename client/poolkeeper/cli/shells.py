"""`poolkeeper completion`: the script for a shell; the names in it are asked of the service while you type."""

from __future__ import annotations

import click

from poolkeeper.cli.grammar import Verb

PROGRAM = "poolkeeper"


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
    script = made(click.get_current_context().find_root().command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    click.echo(script.source())
