"""`poolkeeper plan`, `apply` and `export`: pools, groups and policies as one file.

The service compares and changes; this module reads and writes files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poolkeeper.cli import declaration_files, dry_run, options, output
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.confirm import is_confirmed, is_interactive
from poolkeeper.cli.error_output import CommandError
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.config import PREFIX
from poolkeeper.formatting import one_line, printable

if TYPE_CHECKING:
    from poolkeeper import Client

FILE = click.option("-f", "--file", "name", metavar="FILE", required=True, help="Declaration file; - is stdin.")
PRUNE = click.option("--prune", is_flag=True, help="Also delete pools, groups and policies that are not in the file.")
SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


@click.command(
    "plan", cls=VerbCommand, example="poolkeeper plan -f pools.yaml --exit-code\npoolkeeper export | poolkeeper plan -f -"
)
@FILE
@PRUNE
@click.option("--exit-code", is_flag=True, help="Exit with code 10 if there is something to change.")
def plan(name: str, prune: bool, exit_code: bool) -> None:
    """Show what `apply` would change, and its effect on queued requests and allocations. Nothing is changed."""
    file, client = declaration_files.read(name), options.client()
    plan_document = dict(_plan(client, file, prune=prune))
    if plan_document["changes"]:
        plan_document |= _dry_run(client, file, prune=prune)
    _show(plan_document)
    if exit_code and plan_document["changes"]:
        click.get_current_context().exit(ExitCode.CHANGES)


@click.command("apply", cls=VerbCommand, example="poolkeeper apply -f pools.yaml\npoolkeeper apply -f pools.yaml --prune --yes")
@FILE
@PRUNE
@click.option("--yes", "-y", is_flag=True, help="Do not ask; needed without a terminal.")
def apply(name: str, prune: bool, yes: bool) -> None:
    """Change pools, groups and policies to what a file declares. On a terminal, show the changes and ask first."""
    if not yes and not is_interactive():
        message = "apply needs a terminal to ask, or --yes to apply without asking; nothing was changed"
        raise click.UsageError(message, click.get_current_context())
    file, client = declaration_files.read(name), options.client()
    plan_document = _plan(client, file, prune=prune)
    if not plan_document["changes"]:
        return _show(plan_document)
    if not yes and not is_confirmed(lambda: _question({**plan_document, **_dry_run(client, file, prune=prune)})):
        raise CommandError("nothing was changed")
    return _show(_send(client, "PUT", "/declaration", file, prune=prune), "done: ")


@click.command("export", cls=VerbCommand, example="poolkeeper export > pools.yaml\npoolkeeper export -f pools.yaml --yes")
@click.option("-f", "--file", "name", metavar="FILE", default="-", help="File to write; - is stdout, the default.")
@click.option("--yes", "-y", is_flag=True, help="Overwrite an existing file.")
def export(name: str, yes: bool) -> None:
    """Write pools, groups and policies as a file for `apply`."""
    client = options.client()
    declaration = client.call("GET", "/declaration")
    if options.current_options().output == "name":
        return output.show_list(declaration["pools"], (), lambda row: str(row["name"]))
    if options.current_options().output == "json" and name == "-":
        return output.show_data(declaration)
    text = f"# yaml-language-server: $schema={client.url}{PREFIX}/pools.schema.json\n{declaration_files.to_yaml(declaration)}"
    if name == "-":
        return click.echo(text, nl=False)
    return _save(Path(name), text, yes=yes)


def _plan(client: Client, file: declaration_files.DeclarationFile, *, prune: bool) -> Mapping[str, Any]:
    """Return what would change."""
    return _send(client, "POST", "/declaration/plan", file, prune=prune)


def _send(client: Client, method: str, path: str, file: declaration_files.DeclarationFile, *, prune: bool) -> Mapping[str, Any]:
    """Return the answer to the declaration of a file. An error of the service is reported with the file and the line."""
    from poolkeeper.errors import BadRequest, Conflict, UnprocessableRequest

    try:
        plan_document: Mapping[str, Any] = client.call(method, path, query={"prune": prune}, body=file.declaration)
    except (BadRequest, Conflict, UnprocessableRequest) as error:
        field_errors = [(str(fault.get("field") or ""), str(fault.get("reason") or "")) for fault in error.errors]
        if not field_errors or any(
            field.partition(".")[0] not in ("", "pools", *file.declaration) for field, _ in field_errors
        ):
            raise  # the error is not about the file
        if isinstance(error, BadRequest):
            raise file.error(field_errors) from error
        raise CommandError(file.locate(error.detail, field_errors[0][0])) from error
    return plan_document


def _dry_run(client: Client, file: declaration_files.DeclarationFile, *, prune: bool) -> dict[str, Any]:
    """Return the `effect` on requests, else the reason why the change would be `refused` or its effect is `unknown`."""
    from poolkeeper.errors import ApiError, Conflict, UnprocessableRequest

    body = {"pools": file.declaration["pools"], "prune": prune}
    try:
        return {"effect": client.call("POST", "/dry-run", body=body, timeout_s=dry_run.TIMEOUT_S)}
    except ApiError as error:
        is_judged = isinstance(error, (UnprocessableRequest, Conflict)) and error.code != "too_many_requests_live"
        fields = [str(fault.get("field") or "") for fault in error.errors]
        detail = file.locate(error.detail, fields[0]) if is_judged and fields else error.detail
        return {"effect": None, "refused" if is_judged else "unknown": {"code": error.code, "detail": detail}}


def _save(path: Path, text: str, *, yes: bool) -> None:
    if path.exists() and not yes and not (is_interactive() and is_confirmed(lambda: f"overwrite {path}?")):
        raise CommandError(f"{path} exists already", hints=["--yes overwrites it"])
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"wrote {path}", err=True)


def _question(plan_document: Mapping[str, Any]) -> str:
    click.echo("\n".join(_lines(plan_document)), err=True)
    return "apply these changes?"


def _show(plan_document: Mapping[str, Any], prefix: str = "") -> None:
    if options.current_options().output == "name":
        return output.show_list(plan_document["changes"], (), _name)
    lines = [*_lines(plan_document), prefix + one_line(plan_document["sentence"])]
    return output.show_item(plan_document, "", lambda: click.echo("\n".join(lines)))


def _lines(plan_document: Mapping[str, Any]) -> Iterator[str]:
    for change in plan_document["changes"]:
        sign, colour = SIGNS.get(change["action"], ("?", "white"))
        yield click.style(printable(f"{sign} {change['kind']} {_name(change)}"), fg=colour)
        yield from (f"    {one_line(line)}" for line in change["lines"])
    for use in plan_document.get("over_limit", ()):
        yield click.style(one_line(use["sentence"]), fg="red")
    if effect := list(dry_run.effects(plan_document["effect"])) if plan_document.get("effect") else []:
        yield "Effect on requests that wait or hold units"
        yield from effect
    if refusal := plan_document.get("refused"):
        yield f"applying this would be refused: {one_line(refusal['detail'])}"
    if failure := plan_document.get("unknown"):
        yield f"the effect on requests that wait or hold units is not known: {one_line(failure['detail'])}"


def _name(change: Mapping[str, Any]) -> str:
    """Return `gpus` for a pool, `gpus/research` for an account in it."""
    return str(change["pool"]) if change["kind"] == "pool" else f"{change['pool']}/{change['name']}"
