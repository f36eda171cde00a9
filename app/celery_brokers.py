"""The brokers of users' Celery apps, one for each workspace: granted tasks of the workspace are sent there.

They are named in a file of their own, which `config/brokers.toml` explains. It may hold passwords, so no record and no error
shows its URLs and options. The API only needs to know which workspaces have a broker. The worker that sends looks up each
`${VARIABLE}`, so other processes do not need the secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from app import settings
from app.domain.names import NAME_PATTERN, PATTERN_TEXTS, is_name
from app.domain.setting_kinds import InvalidSetting, SettingKind, int_setting, parse_setting, seconds_setting
from app.settings import Settings, read_toml
from app.store.celery_url import STALL_TIMEOUT_S, celery_broker
from app.store.connection import StoreMisconfigured

FILE_NAME: Final = "brokers.toml"

_FIELDS: Final[dict[str, SettingKind]] = {"start_deadline_s": seconds_setting(1), "start_tries": int_setting("tries", 1000)}
_KNOWN: Final = ("url", "transport_options", *_FIELDS)
_REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
"""The schemes that are parsed like the Redis URL of the service; kombu parses other schemes."""
_REDIS_TIMEOUTS: Final[Mapping[str, Any]] = {"socket_timeout": STALL_TIMEOUT_S, "health_check_interval": STALL_TIMEOUT_S}
_AMQP_TIMEOUTS: Final[Mapping[str, Any]] = {  # without confirms, a message counts as sent that no broker ever accepted
    "confirm_publish": True,
    "read_timeout": STALL_TIMEOUT_S,
    "write_timeout": STALL_TIMEOUT_S,
}
_TIMEOUTS: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("redis", "rediss", "sentinel", "redis+socket"), _REDIS_TIMEOUTS),
    **dict.fromkeys(("amqp", "amqps", "pyamqp"), _AMQP_TIMEOUTS),
}
"""Scheme → the options that end a silent connection."""
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
"""A quoted piece of the URL in an error text. It is cut out, because it may hold a password."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker for kombu. Its repr hides all fields, as each may hold a password."""

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    ssl: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TaskBroker:
    """The broker of a workspace's tasks, the deadline for their start, and the number of dispatches."""

    location: str
    """The file and the workspace, for errors."""
    url: str = field(repr=False)
    transport_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    start_deadline_s: float = 60.0
    start_tries: int = 3

    def address(self, environ: Mapping[str, str] = os.environ) -> BrokerAddress:
        """Return the address with its variables filled in. Raise InvalidSetting for a missing variable or an invalid URL."""
        options = _expand_variables(self.transport_options, f"{self.location}: transport_options", environ)
        return _broker_address(_expand_variables(self.url, f"{self.location}: url", environ), options, f"{self.location}: url")


def read_brokers(chosen: Settings) -> dict[str, TaskBroker]:
    """Return the broker of each workspace. Raise InvalidSetting if the file is invalid; the default file may be absent."""
    path = chosen.brokers or settings.DEFAULT_FILE.with_name(FILE_NAME)
    if not chosen.brokers and not path.exists():
        return {}
    return {name: _parse_broker(path, name, table) for name, table in read_toml(path).items()}


def check_brokers(chosen: Settings) -> None:
    """Raise InvalidSetting if a broker cannot be used."""
    for destination in read_brokers(chosen).values():
        destination.address()


def _parse_broker(path: Path, workspace: str, table: Any) -> TaskBroker:
    location = f"{path}: {workspace}"
    if not isinstance(table, dict):  # the value is not shown: it may be a URL with a password
        raise InvalidSetting(f"{location}: expected a table: the name of a workspace in brackets, then its settings")
    if not is_name(workspace):
        raise InvalidSetting(f"{path}: {workspace!r} cannot be a workspace: its name {PATTERN_TEXTS[NAME_PATTERN]}")
    for key in table.keys() - set(_KNOWN):
        raise InvalidSetting(f"{location}: {key}: there is no such setting; the settings are {', '.join(_KNOWN)}")
    url, options = table.get("url"), table.get("transport_options", {})
    if not isinstance(url, str) or not url.strip():
        raise InvalidSetting(f"{location}: url: expected the URL of the broker, or ${{VARIABLE}}")
    if not isinstance(options, dict):
        raise InvalidSetting(f"{location}: transport_options: expected a table")
    limits = {key: parse_setting(f"{location}: {key}", kind, table[key]) for key, kind in _FIELDS.items() if key in table}
    return TaskBroker(location, url.strip(), options, **limits)


def _expand_variables(value: Any, location: str, environ: Mapping[str, str]) -> Any:
    """Return the value with its variables filled in, at any depth."""
    if isinstance(value, dict):
        return {name: _expand_variables(part, location, environ) for name, part in value.items()}
    if isinstance(value, list):
        return [_expand_variables(part, location, environ) for part in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if not environ.get(name):
            raise InvalidSetting(f"{location}: the variable {name} is not set")
    return _VARIABLE.sub(lambda match: environ[match[1]], value)


def _broker_address(url: str, options: Mapping[str, Any], location: str) -> BrokerAddress:
    scheme = url.partition("://")[0]
    if scheme.endswith("+cluster"):
        raise InvalidSetting(f"{location}: Celery cannot use a cluster as its broker; name a single Redis")
    if scheme not in _REDIS_SCHEMES or ";" in url:
        return BrokerAddress(_check_kombu_url(url, location), {**_TIMEOUTS.get(scheme, {}), **options}, {})
    try:
        parsed = celery_broker(url)
    except StoreMisconfigured as error:
        raise InvalidSetting(f"{location}: {_QUOTED.sub('…', str(error))}") from None
    # the prefix is for the queue of the service
    timeouts = {name: value for name, value in parsed.options.items() if name != "global_keyprefix"}
    tls = {name: _tls_requirement(value) if name == "ssl_cert_reqs" else value for name, value in parsed.ssl.items()}
    return BrokerAddress(parsed.url, {**timeouts, **options}, tls)


def _tls_requirement(requirement: str) -> str:
    """Return the requirement in Python's spelling: URLs of Celery have CERT_REQUIRED."""
    return requirement.removeprefix("CERT_").lower()


def _check_kombu_url(url: str, location: str) -> str:
    """Return a URL that kombu parses, if it is well-formed. The error text of a library might show half a password."""
    if "://" not in url:
        raise InvalidSetting(
            f"{location}: expected the URL of a broker, such as redis://host:6379/0 or amqp://user:password@host//"
        )
    for part in url.split(";"):
        try:
            is_valid = not urlsplit(part).fragment and (urlsplit(part).port or True)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise InvalidSetting(f"{location}: not a valid URL; in a password write # as %23, / as %2F, ? as %3F and @ as %40")
    return url
