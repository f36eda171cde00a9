"""`poolkeeperd token`: create, list and revoke tokens. Output for programs is on stdout, text for people on stderr."""

from __future__ import annotations

import re
import sys
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from app.api.auth import is_loopback
from app.bootstrap import ServiceContext, open_services
from app.cli.context import CONFIG, describe_redis, read_settings, report_errors
from app.domain.models import Deadlines
from app.domain.tokens import Role, Token
from app.domain.workspace_limits import NO_LIMIT, WaitUse
from app.settings import Settings

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_HEAD = ("ID", "NAME", "ROLE", "WORKSPACES", "COMPONENTS", "RATE", "WAITING", "SHAPES", "CREATED", "EXPIRES")


class Duration(click.ParamType[int]):
    """A duration as a number with its unit, such as 90d or 12h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds. The usage error names the units."""
        match = re.fullmatch(r"(\d{1,9})([smhdw])", str(value), re.ASCII)
        if not match:
            self.fail(f"{value!r} is not a duration such as 90d: a number, and s, m, h, d or w", param, ctx)
        return int(match[1]) * _UNITS_S[match[2]]


class LimitNumber(click.ParamType[int | str]):
    """A whole number, or `none`."""

    name = "number|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or `none`: the value None is an option that is not given."""
        text = str(value)
        if text == NO_LIMIT:
            return text
        if not re.fullmatch(r"\d{1,16}", text, re.ASCII):
            self.fail(f"{value!r} is neither a whole number nor {NO_LIMIT}", param, ctx)
        return int(text)


@click.group()
def token() -> None:
    """Create, list and revoke tokens. A token identifies a caller of the service.

    While there are no tokens, every user of this machine has every permission, unless the setting require_token is true.
    """


@token.command()
@CONFIG
@click.argument("name")
@click.option(
    "--role",
    required=True,
    type=click.Choice([role.value for role in Role]),
    help="Role of the token, which has its permissions.",
)
@click.option(
    "--workspace", "workspaces", multiple=True, default=["default"], show_default=True,
    help="Workspace that the token may use; may be repeated; '*': all workspaces.",
)  # fmt: skip
@click.option(
    "--component", "components", multiple=True,
    help="Component of a requester: a name, type/name, or a pattern such as 'intern/*'; may be repeated.",
)  # fmt: skip
@click.option("--sensitive", is_flag=True, help="Permit requests of preemption class 10.")
@click.option("--rate", type=int, help="Calls per second; 0: no limit. Default: the setting rate_per_s.")
@click.option(
    "--max-waiting", type=LimitNumber(),
    help="Most requests that wait in a workspace; none: no limit. Default: 10000 for a requester, else none.",
)  # fmt: skip
@click.option(
    "--max-shapes", type=LimitNumber(),
    help="Most different shapes of these requests; none: no limit. Default: 1000 for a requester, else none.",
)  # fmt: skip
@click.option("--expires", type=Duration(), help="Lifetime of the token, such as 90d. Default: until it is revoked.")
@click.option("--yes", is_flag=True, help="Create the first token without a question, even if requests hold units or wait.")
def create(
    config: Path | None,
    name: str,
    role: str,
    workspaces: tuple[str, ...],
    components: tuple[str, ...],
    sensitive: bool,
    rate: int | None,
    expires: int | None,
    yes: bool,
    **limits: int | str | None,
) -> None:
    """Create a token called NAME and print its secret. The secret is not shown again.

    From the first token on, every call needs a token. If requests hold units or wait without one, the command says how many and
    when they lapse, and asks. Without a terminal it needs --yes.

    \b
    TOKEN=$(poolkeeperd token create ci --role operator)
    poolkeeperd token create nightly --role requester --component team-ml --expires 90d
    poolkeeperd token create interns --role requester --component 'intern/*' --max-waiting 200
    """
    settings = read_settings(config)
    numbers = {name: None if number == NO_LIMIT else int(number) for name, number in limits.items() if number is not None}
    with report_errors(), open_services(settings) as context:
        if not yes:
            _confirm_first(settings, context)
        token, secret = context.services.tokens.create(
            name, role, workspaces, components, sensitive=sensitive, rate=rate, limits=numbers, expires_s=expires
        )
        summary = (
            f"token {token.name}, id {token.id}: {_role(token)} in {_workspaces(token)}; on {describe_redis(context, settings)}"
        )
        click.echo(summary, err=True)
        if len(context.services.tokens.list_tokens()) == 1:
            click.echo("It is the first: from now on every call there needs a token.", err=True)
        click.echo("Its secret, shown only now:", err=True)
        click.echo(secret)


@token.command("list")
@CONFIG
def show(config: Path | None) -> None:
    """Show every token, the oldest first. Its secret is not stored and cannot be shown.

    WAITING and SHAPES are use and limit, as 12/10000. A limit applies to each workspace. The use is that of the workspace with
    the largest.

    Tokens that expire within seven days are named again on stderr.
    """
    with report_errors(), open_services(read_settings(config), existing=True) as context:
        tokens = context.services.tokens.list_tokens()
        expiring = context.services.tokens.list_expiring(len(tokens))
        workspaces = context.services.workspaces.list_names()
        uses = [context.services.tokens.read_wait_use(token, workspaces) for token in tokens]
    for line in _aligned([_HEAD, *map(_row, tokens, uses)]):
        click.echo(line)
    for token, left_s in expiring:
        click.echo(
            f"token {token.name} expires in {_left(left_s)}: create another one, and replace it in the clients", err=True
        )


@token.command()
@CONFIG
@click.argument("name_or_id")
def revoke(config: Path | None, name_or_id: str) -> None:
    """Revoke the token NAME_OR_ID. It is refused within a second."""
    with report_errors(), open_services(read_settings(config), existing=True) as context:
        token, remaining = context.services.tokens.revoke(name_or_id), context.services.tokens.list_tokens()
    click.echo(f"token {token.name}, id {token.id}, is revoked", err=True)
    if not remaining:
        click.echo(
            "It was the last token: unless require_token is set, every user of that machine has every permission.", err=True
        )


def _confirm_first(settings: Settings, context: ServiceContext) -> None:
    """Return if every call needs a token already, if no request is open, or if the user agrees. Else raise ValueError."""
    needs_token = settings.require_token or not is_loopback(settings.host) or context.services.tokens.any_exist()
    if needs_token:
        return
    requests = context.services.queries.read_open_requests(context.services.workspaces.list_names())
    if not requests.allocated.count and not requests.queued.count:
        return
    click.echo("This would be the first token: from then on every call needs a token.", err=True)
    for deadlines, state, end in (
        (requests.allocated, "Allocated", "the leases end"),
        (requests.queued, "Queued", "the queue TTLs end"),
    ):
        if deadlines.count:
            click.echo(
                f"{state} without a token: {_plural(deadlines.count)}. If the clients get no token, {_times(deadlines, end)}.",
                err=True,
            )
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValueError("no token was created: there is no terminal for the question; --yes creates the token without asking")
    click.echo("Create it? [y/N] ", err=True, nl=False)  # not click.confirm, which writes to stdout, where the secret goes
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ValueError("no token was created")


def _plural(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"


def _times(deadlines: Deadlines, end: str) -> str:
    never = f"{deadlines.endless} of them never" if deadlines.endless else ""
    if deadlines.first_ms is None or deadlines.last_ms is None:
        return f"{end} never"
    first, last = _time(deadlines.first_ms), _time(deadlines.last_ms)
    return f"{end} at {first}" + (f" to {last}" if last != first else "") + (f", {never}" if never else "")


def _left(left_s: float) -> str:
    days, hours, minutes = int(left_s // 86_400), int(left_s // 3600), int(left_s // 60)
    return f"{days} d" if days else f"{hours} h" if hours else f"{minutes} min"


def _row(token: Token, use: WaitUse) -> tuple[str, ...]:
    rate = "default" if token.rate_per_s is None else str(token.rate_per_s or "unlimited")
    uses = zip(astuple(use), astuple(token.wait_limits), strict=True)
    limits = [NO_LIMIT if limit is None else f"{present}/{limit}" for present, limit in uses]
    times = _time(token.created_ms), _time(token.expires_ms) if token.expires_ms else "never"
    return token.id, token.name, _role(token), _workspaces(token), ",".join(token.components) or "-", rate, *limits, *times


def _role(token: Token) -> str:
    return f"{token.role}+sensitive" if token.sensitive else token.role


def _workspaces(token: Token) -> str:
    return ",".join(token.workspaces)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
