"""`poolkeeper plan`, `apply` and `export`: pools, groups and policies as one file. The service compares and changes; here it is
only read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poolkeeper.cli import declaration_files, dry_run, options, output
from poolkeeper.cli.command_base import Verb
from poolkeeper.cli.confirm import agreed, somebody_is_there
from poolkeeper.cli.error_output import Failed
from poolkeeper.cli.exit_codes import Exit
from poolkeeper.formatting import one_line, printable

if TYPE_CHECKING:
    from poolkeeper import Client

FILE = click.option("-f", "--file", "name", metavar="FILE", required=True, help="The file; - is stdin.")
PRUNE = click.option("--prune", is_flag=True, help="Also delete what is not in the file.")
SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


@click.command("plan", cls=Verb, example="poolkeeper plan -f pools.yaml --exit-code\npoolkeeper export | poolkeeper plan -f -")
@FILE
@PRUNE
@click.option("--exit-code", is_flag=True, help="End with 10 if there is something to change.")
def plan(name: str, prune: bool, exit_code: bool) -> None:
    """Show what `apply` would change, and what that would mean to those who wait and hold units; nothing is changed."""
    paper, client = declaration_files.read(name), options.client()
    planned = dict(_planned(client, paper, prune=prune))
    if planned["changes"]:
        planned |= _tried(client, paper, prune=prune)
    _show(planned)
    if exit_code and planned["changes"]:
        click.get_current_context().exit(Exit.CHANGES)


@click.command("apply", cls=Verb, example="poolkeeper apply -f pools.yaml\npoolkeeper apply -f pools.yaml --prune --yes")
@FILE
@PRUNE
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def apply(name: str, prune: bool, yes: bool) -> None:
    """Make pools, groups and policies what the file says; on a terminal the changes are shown first, and asked for."""
    paper, client = declaration_files.read(name), options.client()
    planned = _planned(client, paper, prune=prune)
    if not planned["changes"]:
        return _show(planned)
    if not yes and not agreed(lambda: _question({**planned, **_tried(client, paper, prune=prune)})):
        raise Failed("nothing was changed")
    return _show(client.call("PUT", "/declaration", query={"prune": prune}, body=paper.declared), "done: ")


@click.command("export", cls=Verb, example="poolkeeper export > pools.yaml\npoolkeeper export -f pools.yaml --yes")
@click.option("-f", "--file", "name", metavar="FILE", default="-", help="Where to; - is stdout, the default.")
@click.option("--yes", "-y", is_flag=True, help="Even if there is such a file.")
def export(name: str, yes: bool) -> None:
    """Write pools, groups and policies as a file for `apply`."""
    declared = options.call("GET", "/declaration")
    if options.said().output == "name":
        return output.listing(declared["pools"], (), lambda row: str(row["name"]))
    if options.said().output == "json" and name == "-":
        return output.data(declared)
    written = declaration_files.written(declared)
    if name == "-":
        return click.echo(written, nl=False)
    return _save(Path(name), written, yes=yes)


def _planned(client: Client, paper: declaration_files.Paper, *, prune: bool) -> Mapping[str, Any]:
    """What would change. What is wrong in the paper is told by what is written there."""
    from poolkeeper.errors import Malformed

    try:
        found: Mapping[str, Any] = client.call("POST", "/declaration/plan", query={"prune": prune}, body=paper.declared)
    except Malformed as wrong:
        faults = [(str(fault.get("field") or ""), str(fault.get("reason") or "")) for fault in wrong.errors]
        if not faults or any(field.partition(".")[0] not in ("", "pools", *paper.declared) for field, _ in faults):
            raise  # of something else than the paper
        raise paper.malformed(faults) from wrong
    return found


def _tried(client: Client, paper: declaration_files.Paper, *, prune: bool) -> dict[str, Any]:
    """The `effect` on those who wait and hold units; else why it would be `refused`, or why that is `unknown`."""
    from poolkeeper.errors import AgainstTheRules, Conflict, Refused

    body = {"pools": paper.declared["pools"], "prune": prune}
    try:
        return {"effect": client.call("POST", "/dry-run", body=body, timeout_s=dry_run.PATIENCE_S)}
    except Refused as no:
        is_judged = isinstance(no, (AgainstTheRules, Conflict)) and no.code != "too_many_requests_live"
        return {"effect": None, "refused" if is_judged else "unknown": {"code": no.code, "detail": no.detail}}


def _save(path: Path, written: str, *, yes: bool) -> None:
    if path.exists() and not yes and not (somebody_is_there() and agreed(lambda: f"write over {path}?")):
        raise Failed(f"{path} is there already", hints=["--yes writes over it"])
    try:
        path.write_text(written, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"wrote {path}", err=True)


def _question(planned: Mapping[str, Any]) -> str:
    click.echo("\n".join(_lines(planned)), err=True)
    return "change that?"


def _show(planned: Mapping[str, Any], word: str = "") -> None:
    if options.said().output == "name":
        return output.listing(planned["changes"], (), _name)
    told = [*_lines(planned), word + one_line(planned["sentence"])]
    return output.one(planned, "", lambda: click.echo("\n".join(told)))


def _lines(planned: Mapping[str, Any]) -> Iterator[str]:
    for change in planned["changes"]:
        sign, colour = SIGNS.get(change["action"], ("?", "white"))
        yield click.style(printable(f"{sign} {change['kind']} {_name(change)}"), fg=colour)
        yield from (f"    {one_line(line)}" for line in change["lines"])
    if effect := list(dry_run.effects(planned["effect"])) if planned.get("effect") else []:
        yield "Of those who wait and hold units"
        yield from effect
    if refused := planned.get("refused"):
        yield f"applying this would be refused: {one_line(refused['detail'])}"
    if unknown := planned.get("unknown"):
        yield f"what it would mean to those who wait and hold units is not known: {one_line(unknown['detail'])}"


def _name(change: Mapping[str, Any]) -> str:
    """`gpus` for a pool, `gpus/research` for what is in it."""
    return str(change["pool"]) if change["kind"] == "pool" else f"{change['pool']}/{change['name']}"
