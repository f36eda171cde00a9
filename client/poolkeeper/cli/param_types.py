"""Types of command line values: names, components, amounts, durations, settings, labels. Errors are one clear line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from poolkeeper.cli import completion_names, pool_settings
from poolkeeper.formatting import DEFAULT_TYPE, UNIT_SECONDS, component, one_line
from poolkeeper.request_origin import short_id, title

LARGEST = 2**53 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_DECIMAL = re.compile(r"-?\d{1,16}\.\d{1,16}", re.ASCII)
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s?)?", re.ASCII)


class Name(click.ParamType[str]):
    """A name, completed from the existing names."""

    name = "name"

    def __init__(self, *listing: str) -> None:
        self.listing = listing

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name if it is valid."""
        if not _NAME.fullmatch(value):
            self.fail(f"{value!r} is no name: 1 to 63 of A-Z a-z 0-9 _ . - beginning with a letter or digit", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the text; none if the service does not answer at once."""
        return [CompletionItem(name) for name in completion_names.names(ctx, self.listing) if name.startswith(incomplete)]


class RequestId(Name):
    """The id of a request, or the part of it that `request_ids` completes."""

    name = "request"

    def __init__(self, *status: str) -> None:
        super().__init__()
        self.status = status

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids and the short ids that begin with the text, each with the help that shells show beside it."""
        rows = completion_names.requests(ctx, self.status)
        words = [(str(row["id"]), row) for row in rows]
        if incomplete:
            words += [(short_id(str(row["id"])), row) for row in rows]
        return [
            CompletionItem(word, help=_request_description(row)) for word, row in words if word.startswith(incomplete.lower())
        ]


def _request_description(row: Mapping[str, Any]) -> str:
    words = (title(row.get("name"), row["labels"]), component(row), str(row["status"]))
    return one_line(", ".join(filter(None, words)))


class Component(click.ParamType[tuple[str | None, str]]):
    """A component, `team` or `step_operator/team`: (type or None, name)."""

    name = "component"

    def __init__(self, *, may_be_template: bool = False) -> None:
        self.may_be_template = may_be_template

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, str]:
        """Return the type, if any, and the name."""
        if isinstance(value, tuple):
            return value
        kind, slash, name = value.rpartition("/")
        is_template = self.may_be_template and name.endswith("*")
        names = [*([kind] if slash else []), *([name[:-1]] if is_template and name != "*" else [] if is_template else [name])]
        if not all(_NAME.fullmatch(part) for part in names):
            template = "; a template ends with its only *, such as user-* or intern/*" if self.may_be_template else ""
            example = "NAME or TYPE/NAME, such as team-ml or step_operator/team-ml"
            self.fail(f"{value!r} is no component: {example}{template}", param, ctx)
        return kind or None, name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the components with a policy in the pool on the command line, else in any pool."""
        return [CompletionItem(name) for name in completion_names.components(ctx) if name.startswith(incomplete)]


class Amounts(click.ParamType[dict[str, int | None]]):
    """Amounts, `gpu=2,mcpu=4000`, or the same as JSON or YAML. With `removable`, `none` as a number removes the key."""

    name = "amounts"

    def __init__(self, *, removable: bool = False, option_by_key: Mapping[str, str] | None = None) -> None:
        self.removable, self.option_by_key = removable, option_by_key or {}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form of the value for the usage line."""
        return "KEY=UNITS[,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int | None]:
        """Return the units by key."""
        if isinstance(value, dict):
            return value
        try:
            return parse_amounts(value, removable=self.removable)
        except ValueError as error:
            option = self.option_by_key.get(str(error).partition(":")[0])
            self.fail(f"{error}{f'; {option} takes it' if option else ''}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the keys of the pool on the command line, else of any pool, each with the `=` that follows."""
        return [CompletionItem(f"{key}=") for key in completion_names.keys(ctx) if key.startswith(incomplete)]


def parse_amounts(text: str, *, removable: bool = False) -> dict[str, int | None]:
    """Return the amounts of a text. Raise ValueError with the key and its error."""
    amounts: dict[str, int | None] = {}
    for key, amount in _parse_pairs(text):
        if key in amounts:
            raise ValueError(f"{key} is given twice")
        amounts[key] = _parse_units(key, amount, removable=removable)
    return amounts


def _parse_pairs(text: str) -> Iterable[tuple[str, str]]:
    if not text.strip():
        raise ValueError("is empty; write amounts like gpu=2,mcpu=4000")
    if "=" in text and not text.lstrip().startswith("{"):
        return [_parse_pair(part) for part in text.split(",")]
    return _parse_yaml_pairs(text)


def _parse_pair(part: str) -> tuple[str, str]:
    key, equals, amount = (each.strip() for each in part.partition("="))
    if not (key and equals and amount):
        raise ValueError(f"{part.strip()!r} is no amount; write it like gpu=2")
    return key, amount


def _parse_yaml_pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of YAML or JSON. Scalars stay as they were written, so that no number is changed."""
    import yaml

    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r} is neither KEY=UNITS,… nor JSON nor YAML") from error
    if not isinstance(top, yaml.MappingNode):
        raise ValueError(f"{text!r} is no amount; write it like gpu=2")
    nested = [key.value for key, amount in top.value if not isinstance(amount, yaml.ScalarNode)]
    if nested:
        raise ValueError(f"{nested[0]}: must be a whole number")
    return [(str(key.value), amount.value) for key, amount in top.value]


def _parse_units(key: str, amount: str, *, removable: bool) -> int | None:
    if removable and amount in ("none", "null"):
        return None
    if not (amount.isascii() and amount.isdigit()):
        raise ValueError(f"{key}: must be a whole number, not {amount}")
    if len(amount) > 16 or int(amount) > LARGEST:
        raise ValueError(f"{key}: must be at most {LARGEST}")
    return int(amount)


def merge(values: Iterable[dict[str, Any]], option: str) -> dict[str, Any]:
    """Return the values of a repeated option as one mapping. Raise BadOptionUsage if a key is given twice."""
    result: dict[str, Any] = {}
    for each in values:
        if duplicates := result.keys() & each.keys():
            raise click.BadOptionUsage(option, f"{option}: {', '.join(sorted(duplicates))} is given twice")
        result.update(each)
    return result


NONE = "none"
"""The word for a duration of None on the command line; None itself means to click that the option is not given."""


class Duration(click.ParamType[int | str]):
    """A duration in seconds, written `90`, `90s`, `15m`, `2h`, `1d` or `1h30m`; with `none` also `none`."""

    name = "duration"

    def __init__(self, *, none: bool = False) -> None:
        self.none = none

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form of the value for the usage line."""
        return "DURATION|none" if self.none else "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the seconds, or NONE."""
        if isinstance(value, int):
            return value
        if self.none and value.lower() in (NONE, "null"):
            return NONE
        try:
            return parse_duration(value)
        except ValueError:
            self.fail(f"{value!r} is no duration; write 90, 90s, 15m, 2h or 1d{', or none' if self.none else ''}", param, ctx)


def parse_duration(text: str) -> int:
    """Return the seconds of a duration."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not text.strip():
        raise ValueError(text)
    return sum(int(count or 0) * length for count, length in zip(match.groups(), UNIT_SECONDS.values(), strict=True))


def seconds(duration: int | str) -> int | None:
    """Return a duration as the API takes it: None for NONE."""
    return None if duration == NONE else int(duration)


class Setting(click.ParamType[dict[str, Any]]):
    """A setting: `queueing=strict`, `patience_s=5m`, `patience_s=none`, `max_victims=3`, `requeue_failed_checkpoint=false`,
    `preemption_threshold=0.5`, `non_preemptible_usage_threshold=gpu=2`."""

    name = "setting"

    def __init__(self, choices: Mapping[str, Sequence[str]] | None = None) -> None:
        self.choices = choices or {}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form of the value for the usage line."""
        return "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return one setting, with its value for JSON."""
        if isinstance(value, dict):
            return value
        key, equals, text = (part.strip() for part in value.partition("="))
        if not (key and equals and text):
            self.fail(f"{value!r} is no setting; write it like queueing=strict", param, ctx)
        try:
            return {key: _parse_value(key, text)}
        except ValueError as error:
            self.fail(f"{key}: {error}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names of settings, or the choices of the setting that is named."""
        words = [f"{name}={word}" for name, may_be in self.choices.items() if f"{name}=" in incomplete for word in may_be]
        words = words or [f"{name}=" for name in self.choices]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


LITERALS = {NONE: None, "null": None, "true": True, "false": False}


def _parse_value(key: str, text: str) -> Any:
    if key in pool_settings.AMOUNT_SETTINGS:
        return {} if text in (NONE, "null") else parse_amounts(text)
    if text in LITERALS:
        return LITERALS[text]
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 16:
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if key.endswith("_s"):
        try:
            return parse_duration(text)
        except ValueError:
            return text  # the service judges it
    return text


class Label(click.ParamType[dict[str, str]]):
    """A label, `owner=ana`."""

    name = "label"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form of the value for the usage line."""
        return "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """Return one label."""
        if isinstance(value, dict):
            return value
        key, equals, text = value.partition("=")
        if not (key and equals):
            self.fail(f"{value!r} is no label; write it like owner=ana", param, ctx)
        return {key: text}


def full_component(component: tuple[str | None, str], kind: str | None) -> tuple[str, str]:
    """Return (type, name) of a component and the option --type, which may only repeat the type."""
    prefix, name = component
    if prefix and kind and prefix != kind:
        raise click.BadOptionUsage("--type", f"--type {kind} is not the type of {prefix}/{name}")
    return prefix or kind or DEFAULT_TYPE, name


POOL = Name("pools")
GROUP = Name("pools", "{pool}", "groups")
REQUEST = RequestId()
QUEUED_REQUEST = RequestId("queued")
ALLOCATED_REQUEST = RequestId("allocated", "preempting")
ANY_NAME = Name()
COMPONENT = Component()
POLICY_COMPONENT = Component(may_be_template=True)
