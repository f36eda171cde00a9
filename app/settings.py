"""The settings: read once, from a file and then from `POOLKEEPER_*` variables, and passed down from there.

The defaults live here, so that an installed package needs no file; `config/default.toml` says the same with comments.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.domain import variable_names
from app.domain.ledger_limits import LedgerLimits

TEN_YEARS_S = 10 * 365 * 86_400
DEFAULT_FILE = Path(__file__).resolve().parent.parent / "config" / "default.toml"
_LEDGER = LedgerLimits()


class InvalidSetting(ValueError):  # noqa: N818 - names what is wrong, as the other refusals do
    """A setting that cannot be used; the message is one line for the person who wrote it."""


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
    "the path of a file, or nothing for the one beside the defaults",
    lambda value: _validate_path(value) if _validate_text(value) else None,
)


def setting(default: Any, kind: SettingKind, *, in_repr: bool = True) -> Any:
    """Return a field of Settings with its kind."""
    return field(default=default, metadata={"kind": kind}, repr=in_repr)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set; `config/default.toml` explains each in the same order."""

    redis_url: str | None = setting(None, URL, in_repr=False)  # there may be a password in it
    data_dir: Path = setting(Path("data"), FOLDER)  # noqa: RUF009 - a field, and paths do not change
    appendfsync: str = setting("everysec", choice_setting("everysec", "always", "no"))
    redis_timeout_s: float = setting(5.0, seconds_setting(0.1))
    replicas_acknowledge: int = setting(0, int_setting("replicas", least=0, most=100))
    reconcile_interval_s: float = setting(2.0, seconds_setting(0.1))
    shares_interval_s: float = setting(1.0, seconds_setting(0.1))
    cleanup_interval_s: float = setting(5.0, seconds_setting(0.1))
    audit_interval_s: float = setting(600.0, seconds_setting(1))
    history_interval_s: float = setting(60.0, seconds_setting(1))
    history_kept: int = setting(720, int_setting("samples", most=10_000))
    retention_s: int = setting(_LEDGER.retention_s, int_setting("seconds", least=0, most=TEN_YEARS_S))
    events_kept: int = setting(_LEDGER.events_kept, int_setting("events", most=10**9))
    idempotency_ttl_s: int = setting(_LEDGER.idempotency_ttl_s, int_setting("seconds", most=TEN_YEARS_S))
    chunk: int = setting(_LEDGER.chunk, int_setting("requests", most=1000))  # Lua cannot unpack much more
    log_level: str = setting("info", choice_setting("debug", "info", "warning", "error"))
    log_format: str = setting("json", choice_setting("json", "text"))
    access_log_slow_ms: int = setting(500, int_setting("milliseconds", least=0, most=TEN_YEARS_S))
    access_log_sample_percent: int = setting(0, int_setting("percent", least=0, most=100))
    log_file_bytes: int = setting(20 * 2**20, int_setting("bytes", least=0, most=2**40))
    log_files_kept: int = setting(3, int_setting("files", least=0, most=100))
    traces: bool = setting(False, TRACES)
    host: str = setting("127.0.0.1", HOST)
    port: int = setting(8080, int_setting("a port", least=0, most=65535))
    require_token: bool = setting(False, FLAG)
    rate_per_s: int = setting(0, int_setting("requests a second", least=0, most=10**6))
    max_body_bytes: int = setting(4 * 2**20, int_setting("bytes", least=1024, most=2**30))
    api_processes: int = setting(2, int_setting("processes", most=64))
    api_threads: int = setting(640, int_setting("threads", least=8, most=10_000))
    token_share_percent: int = setting(25, int_setting("percent", most=100))
    broker_url: str | None = setting(None, BROKER, in_repr=False)
    worker_processes: int = setting(2, int_setting("processes", most=64))
    brokers: Path | None = setting(None, FILE)  # noqa: RUF009 - a field, and paths do not change

    @classmethod
    def read(cls, path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the file `path` (else POOLKEEPER_CONFIG, else the file beside the package), then the variables."""
        kinds = {setting_field.name: setting_field.metadata["kind"] for setting_field in fields(cls)}
        values = _from_file(path or _settings_file(environ), kinds)
        return cls(**(values | _from_variables(environ, kinds)))


def _settings_file(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("POOLKEEPER_CONFIG")
    if named:
        return Path(named).expanduser()
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _from_file(path: Path | None, kinds: Mapping[str, SettingKind]) -> dict[str, Any]:
    if path is None:
        return {}
    table = read_toml(path)
    for key in table.keys() - kinds.keys():
        raise InvalidSetting(f"{path}: {key}: there is no such setting; known are {', '.join(kinds)}")
    return {key: parse_setting(f"{path}: {key}", kinds[key], value) for key, value in table.items()}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raise InvalidSetting if it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidSetting(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{path}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{path}: is not TOML: {error}") from error


def _from_variables(environ: Mapping[str, str], kinds: Mapping[str, SettingKind]) -> dict[str, Any]:
    if refusal := variable_names.refusal_of_unknown(environ):
        raise InvalidSetting(refusal)
    links, values = variable_names.service_links(environ), {}
    for key, kind in kinds.items():
        name = f"POOLKEEPER_{key.upper()}"
        if name in environ and name not in links:
            values[key] = parse_setting(name, kind, environ[name], parse=kind.parse)
    return values


def parse_setting(location: str, kind: SettingKind, value: Any, parse: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return the value if it is of this kind. Raise InvalidSetting, which shows it, if not."""
    try:
        return kind.validate(parse(value))
    except ValueError as error:
        raise InvalidSetting(f"{location}: expected {kind.expected}, not {value!r}") from error
