"""`poolkeeper completion`: the script for a shell, which asks the service for names while you type."""

from __future__ import annotations

import click

from poolkeeper.cli.command_base import VerbCommand

PROGRAM = "poolkeeper"
BASH_APPEND = "COMPREPLY+=($value)"
BASH_NO_SPACE = "[[ $value == *= ]] && compopt -o nospace"
"""The line that keeps bash from adding a space after `gpu=`: the amount follows."""


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
