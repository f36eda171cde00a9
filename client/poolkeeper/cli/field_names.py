"""Options of the fields of the API: an error of `settings.memory` is an error of `--memory`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

OPTION_NAMES = {"component_type": "kind", "preemptible": "fixed", "Idempotency-Key": "key", "Poolkeeper-Workspace": "workspace"}
"""Fields whose option has a name of its own."""


def with_option_names(field_errors: Iterable[Mapping[str, str]], params: Sequence[click.Parameter]) -> list[dict[str, str]]:
    """Return the field errors, each with the name of its option if it has one."""
    options = {param.name or "": param.opts[0] for param in params if isinstance(param, click.Option)}
    return [{**fault, "field": _option_of(str(fault.get("field") or ""), options)} for fault in field_errors]


def _option_of(field: str, options: Mapping[str, str]) -> str:
    head, _, rest = field.partition(".")
    head = OPTION_NAMES.get(head, head)
    for name in (head, head.removesuffix("_s")):
        if name in options:
            return f"{options[name]} {rest}".rstrip()
    return _option_of(rest, options) if head == "settings" and rest else field
