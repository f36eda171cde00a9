"""`poolkeeper completion`: the script for a shell; the names in it are asked of the service while you type."""

from __future__ import annotations

import click

from poolkeeper.cli.command_base import VerbCommand

PROGRAM = "poolkeeper"
BASH_APPEND = "COMPREPLY+=($value)"
BASH_NO_SPACE = "[[ $value == *= ]] && compopt -o nospace"
"""After `gpu=` the amount is to follow, and not a space."""


@click.command(
    "completion",
    cls=VerbCommand,
    example='eval "$(poolkeeper completion bash)"\npoolkeeper completion fish > ~/.config/fish/completions/poolkeeper.fish',
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names in SHELL."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class
    script = completion_class(
        click.get_current_context().find_root().command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE"
    ).source()
    click.echo(script.replace(BASH_APPEND, f"{BASH_APPEND}\n            {BASH_NO_SPACE}") if shell == "bash" else script)
