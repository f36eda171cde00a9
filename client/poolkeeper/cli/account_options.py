"""Options that policies and groups share, and partial changes of a document that the API only replaces as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import click

from poolkeeper.cli import options, param_types, pool_settings
from poolkeeper.formatting import one_line

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
BodyChange: TypeAlias = Callable[[Mapping[str, Any], Sequence[str]], dict[str, Any]]
"""The present document and the names of the fields of the new one → the whole new document."""

RESERVED = click.option(
    "--reserved", type=param_types.Amounts(removable=True), multiple=True, help="Units reserved for it: gpu=4. May be repeated."
)
LIMIT = click.option(
    "--limit",
    type=param_types.Amounts(removable=True),
    multiple=True,
    help="Most units it may use: gpu=8 (default: the pool's capacity). May be repeated.",
)
WEIGHT = click.option("--weight", type=click.IntRange(min=1), help="Weight of its fair share among its siblings (default: 1).")
SETTING = click.option(
    "--setting",
    "--settings",
    "settings",
    type=param_types.Setting(pool_settings.ACCOUNT_SETTINGS),
    multiple=True,
    help="Own setting, such as starvation_timeout_s=2m or preemption_threshold=0.5; none inherits it again. May be repeated.",
)


def show_over_limit(document: Mapping[str, Any]) -> None:
    """Print, for people, the use that a change has put beyond a limit."""
    if not options.current_options().for_programs:
        for use in document.get("over_limit") or ():
            click.echo(one_line(use["sentence"]))


def group_option(word: str, about: str) -> Callable[[Decorated], Decorated]:
    """Return an option that names a group of the pool."""
    return click.option(word, word.removeprefix("--"), type=param_types.GROUP, help=about)


def body_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the options that were given; a key or setting that is `none` is left out."""
    body = {field: _merge_option(field, value) for field, value in values.items() if value not in (None, ())}
    for field in ("reserved", "limit", "settings"):
        if field in body:
            body[field] = {key: value for key, value in body[field].items() if value is not None}
    return body


def change_of(values: Mapping[str, Any], cleared: Mapping[str, bool]) -> BodyChange:
    """Return a function that applies the options to a document. Raise UsageError if no option is given."""
    changes = {field: _merge_option(field, value) for field, value in values.items() if value not in (None, ())}
    cleared_fields = [field for field, clear in cleared.items() if clear]
    if both := [field for field in cleared_fields if field in changes]:
        raise click.UsageError(f"--{both[0]} and --no-{both[0]} exclude each other", click.get_current_context())
    if not changes and not cleared_fields:
        raise click.UsageError("nothing to change: give an option", click.get_current_context())

    def apply(current: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
        body = {field: current[field] for field in fields if current.get(field) is not None}
        for field, value in changes.items():
            body[field] = _merge(body.get(field, {}), value) if isinstance(value, dict) else value
        return {field: value for field, value in body.items() if field not in cleared_fields}

    return apply


def _merge_option(field: str, value: Any) -> Any:
    option = "--setting" if field == "settings" else f"--{field}"
    return param_types.merge(value, option) if isinstance(value, tuple) else value


def _merge(current: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**current, **changes}.items() if value is not None}
