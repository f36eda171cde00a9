"""Base classes of commands: verbs with an example and the global options, nouns that group them, a root that imports lazily."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from poolkeeper.cli import error_output, field_names, options
from poolkeeper.cli.exit_codes import ExitCode, as_table

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class VerbCommand(click.Command):
    """A command that makes calls and prints their result."""

    def __init__(self, *words: Any, example: str = "", **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.example = example
        self.global_options = options.verb_options()
        self.params = [*self.params, *self.global_options]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the verb; the global options take one line."""
        own = [param for param in self.get_params(ctx) if param not in self.global_options]
        records = [record for param in own if (record := param.get_help_record(ctx)) and isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl(records)
        with formatter.section("Global options"):
            formatter.write_text("-o, --no-headers, --url, --token, --workspace: see `poolkeeper --help`")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        with formatter.section("Examples"):
            for line in self.example.strip().splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke the command with full ids. Similar names are added to a NotFound, and the names of options to a BadRequest."""
        from poolkeeper.cli import request_ids
        from poolkeeper.errors import BadRequest, NotFound
        from poolkeeper.variable_names import refusal_of_unknown

        if refusal := refusal_of_unknown(os.environ):
            raise error_output.CommandError(refusal, ExitCode.USAGE)
        try:
            request_ids.resolve(ctx, self.params)
            return super().invoke(ctx)
        except NotFound as error:
            from poolkeeper.cli import suggestions

            suggestions.add_names(error, ctx.params)
            raise
        except BadRequest as error:
            error.errors = field_names.with_option_names(error.errors, self.params)
            raise


class NounGroup(click.Group):
    """A group of verbs about one kind of object."""

    command_class = VerbCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in their order in the source."""
        return list(self.commands)


class RootGroup(click.Group):
    """The program. It imports commands at their first use, and always ends with an exit code."""

    def __init__(self, *words: Any, modules: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.modules = modules
        self.params = [*self.params, *options.root_options()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help page."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in self.modules:
            return None
        module = import_module(f"poolkeeper.cli.{self.modules[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command like click. Suggest commands that are not imported yet, and nouns that have a verb of this name."""
        if args[0] not in self.modules and not args[0].startswith("-") and not ctx.resilient_parsing:
            if nouns := [noun for noun in self.modules if args[0] in getattr(self.get_command(ctx, noun), "commands", ())]:
                commands = " or ".join(f"'{noun} {args[0]}'" for noun in nouns)
                raise click.UsageError(f"No such command '{args[0]}'. Did you mean {commands}?", ctx)
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.modules, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and descriptions without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self.modules.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write(as_table() + "\n")

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **settings: Any) -> Any:  # type: ignore[override]
        """Run the program and exit with its code. Only a bug prints a traceback."""
        _escape_unencodable()
        settings.setdefault("color", False if os.environ.get("NO_COLOR") else None)
        try:
            code = super().main(args, prog_name, **{**settings, "standalone_mode": False})
        except Exception as error:
            if os.environ.get("POOLKEEPER_TRACEBACK") and error_output.is_bug(error):
                raise
            code = error_output.report(error)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke the command. A closed stdout ends it without an error."""
        try:
            result = super().invoke(ctx)
            if sys.stdout:
                sys.stdout.flush()
        except BrokenPipeError:
            error_output.discard_stdout()
            return ExitCode.OK
        return result


def _escape_unencodable() -> None:
    """Make stdout escape a character that its encoding does not have."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
