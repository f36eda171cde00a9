"""The kinds of values that a process setting may have: described in words, checked, and parsed from a variable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.domain.field_types import TEN_YEARS_S


class InvalidSetting(ValueError):  # noqa: N818 - named like the other refusals
    """A setting that cannot be used. The message is one line for the operator."""


@dataclass(frozen=True)
class SettingKind:
    """The values of a setting: described in words, read from a file (typed already), and parsed from a variable."""

    expected: str
    validate: Callable[[Any], Any]  # the value, or ValueError
    parse: Callable[[str], Any] = str


def _validate_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _validate_number(value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ValueError
    return value


def _validate_int(value: object, least: int, most: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError
    return value


def _validate_path(value: object) -> Path:
    if not _validate_text(value):
        raise ValueError
    return Path(_validate_text(value)).expanduser()


def choice_setting(*words: str) -> SettingKind:
    """Return the kind of a setting with a few words to choose from."""

    def accept(value: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return SettingKind("one of " + ", ".join(words), accept)


def seconds_setting(least: float) -> SettingKind:
    """Return the kind of a duration in seconds."""
    return SettingKind(
        f"a number of seconds, from {least:g} to {TEN_YEARS_S}",
        lambda value: float(_validate_number(value, least, TEN_YEARS_S)),
        float,
    )


def int_setting(unit: str, most: int, least: int = 1) -> SettingKind:
    """Return the kind of a whole number of `unit`."""
    return SettingKind(
        f"a whole number of {unit}, from {least} to {most}", lambda value: _validate_int(value, least, most), int
    )


def _validate_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


def _parse_flag(text: str) -> bool:
    if text.strip().lower() not in _FLAGS:
        raise ValueError
    return _FLAGS[text.strip().lower()]


def _validate_host(value: object) -> str:
    if not _validate_text(value).strip() or len(_validate_text(value).split()) != 1:
        raise ValueError
    return _validate_text(value).strip()


def _validate_traces(value: object) -> bool:
    if _validate_flag(value) and not all(map(_is_installed, OTEL_MODULES)):
        raise ValueError
    return bool(value)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package around it
        return False


OTEL_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp", "opentelemetry.instrumentation")
"""The modules of the extra `otel`."""
FLAG = SettingKind("true or false", _validate_flag, _parse_flag)
TRACES = SettingKind(
    "true or false, and true only with the extra: pip install 'poolkeeper-server[otel]'", _validate_traces, _parse_flag
)
HOST = SettingKind("a host name or address", _validate_host)
URL = SettingKind("a URL, or nothing for the embedded server", lambda value: _validate_text(value).strip() or None)
BROKER = SettingKind("a URL, or nothing for the Redis of the ledger", lambda value: _validate_text(value).strip() or None)
FOLDER = SettingKind("the path of a folder", _validate_path)
FILE = SettingKind(
    "the path of a file, or nothing for the one beside default.toml",
    lambda value: _validate_path(value) if _validate_text(value) else None,
)


def parse_setting(location: str, kind: SettingKind, value: Any, parse: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return the value if it is of this kind. Raise InvalidSetting, which shows it, if not."""
    try:
        return kind.validate(parse(value))
    except ValueError as error:
        raise InvalidSetting(f"{location}: expected {kind.expected}, not {value!r}") from error
