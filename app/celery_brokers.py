"""The brokers of people's own Celery apps, one for each workspace: where its tasks are sent when they are granted.

They are named in a file of their own (`config/brokers.toml` has it all explained), as there may be passwords in it: what it
says of a broker is shown nowhere, neither in a record nor in an error. The API wants to know only which workspaces have one.
What is behind a `${VARIABLE}` is looked up by the worker that sends, so nobody else has to be told.
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
from app.domain.names import NAME_PATTERN, RULES, is_name
from app.settings import BadSetting, Kind, Settings, accepted, read_toml, seconds, whole
from app.store.celery_url import STALL_S, broker
from app.store.connection import StoreMisconfigured

FILE_NAME: Final = "brokers.toml"

_FIELDS: Final[dict[str, Kind]] = {"start_deadline_s": seconds(1), "start_tries": whole("tries", 1000)}
_KNOWN: Final = ("url", "transport_options", *_FIELDS)
_OURS: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
"""Schemes that are written as the ledger's URL is; any other is kombu's to understand."""
_PATIENCE_WITH_REDIS: Final[Mapping[str, Any]] = {"socket_timeout": STALL_S, "health_check_interval": STALL_S}
_PATIENCE_WITH_AMQP: Final[Mapping[str, Any]] = {  # what is not confirmed counts as sent, though no broker ever took it
    "confirm_publish": True,
    "read_timeout": STALL_S,
    "write_timeout": STALL_S,
}
_PATIENCE: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("redis", "rediss", "sentinel", "redis+socket"), _PATIENCE_WITH_REDIS),
    **dict.fromkeys(("amqp", "amqps", "pyamqp"), _PATIENCE_WITH_AMQP),
}
"""By scheme, what keeps a connection that says nothing from being waited for."""
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
"""A piece of the URL in an error: whatever is wrong with it, a password may be in the wrong place."""


@dataclass(frozen=True, slots=True)
class Address:
    """A broker in the words of kombu; none of them is shown, as each may hold a password."""

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    ssl: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the tasks of a workspace are sent, how soon each has to be begun there, and how often it is sent for that."""

    where: str
    """The file and the workspace, for errors."""
    url: str = field(repr=False)
    transport_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    start_deadline_s: float = 60.0
    start_tries: int = 3

    def address(self, environ: Mapping[str, str] = os.environ) -> Address:
        """The broker, its variables filled in; BadSetting if one is not set, or it cannot be a broker."""
        options = _filled(self.transport_options, f"{self.where}: transport_options", environ)
        return _address(_filled(self.url, f"{self.where}: url", environ), options, f"{self.where}: url")


def read(chosen: Settings) -> dict[str, Destination]:
    """By workspace, where tasks are sent; BadSetting if the file cannot be used. The one beside the defaults may be absent."""
    path = chosen.brokers or settings.DEFAULT_FILE.with_name(FILE_NAME)
    if not chosen.brokers and not path.exists():
        return {}
    return {name: _destination(path, name, said) for name, said in read_toml(path).items()}


def check(chosen: Settings) -> None:
    """BadSetting if one of them cannot be used as it is named."""
    for destination in read(chosen).values():
        destination.address()


def _destination(path: Path, workspace: str, said: Any) -> Destination:
    where = f"{path}: {workspace}"
    if not isinstance(said, dict):  # and not what it is: it may be a URL
        raise BadSetting(f"{where}: expected a table, the name of a workspace in brackets before what belongs to it")
    if not is_name(workspace):
        raise BadSetting(f"{path}: {workspace!r} cannot be a workspace: its name {RULES[NAME_PATTERN]}")
    for key in said.keys() - set(_KNOWN):
        raise BadSetting(f"{where}: {key}: there is no such setting; known are {', '.join(_KNOWN)}")
    url, options = said.get("url"), said.get("transport_options", {})
    if not isinstance(url, str) or not url.strip():
        raise BadSetting(f"{where}: url: expected the URL of the broker, or ${{VARIABLE}}")
    if not isinstance(options, dict):
        raise BadSetting(f"{where}: transport_options: expected a table")
    rest = {key: accepted(f"{where}: {key}", kind, said[key]) for key, kind in _FIELDS.items() if key in said}
    return Destination(where, url.strip(), options, **rest)


def _filled(said: Any, where: str, environ: Mapping[str, str]) -> Any:
    """The same with its variables filled in, however deep they are."""
    if isinstance(said, dict):
        return {name: _filled(part, where, environ) for name, part in said.items()}
    if isinstance(said, list):
        return [_filled(part, where, environ) for part in said]
    if not isinstance(said, str):
        return said
    for name in _VARIABLE.findall(said):
        if not environ.get(name):
            raise BadSetting(f"{where}: the variable {name} is not set")
    return _VARIABLE.sub(lambda found: environ[found[1]], said)


def _address(url: str, options: Mapping[str, Any], where: str) -> Address:
    scheme = url.partition("://")[0]
    if scheme.endswith("+cluster"):
        raise BadSetting(f"{where}: Celery cannot use a cluster as its broker; name a Redis that stands alone")
    if scheme not in _OURS or ";" in url:
        return Address(_understood(url, where), {**_PATIENCE.get(scheme, {}), **options}, {})
    try:
        known = broker(url)
    except StoreMisconfigured as wrong:
        raise BadSetting(f"{where}: {_QUOTED.sub('…', str(wrong))}") from None
    ours = {name: value for name, value in known.options.items() if name != "global_keyprefix"}  # that is for our own queue
    tls = {name: _as_python(value) if name == "ssl_cert_reqs" else value for name, value in known.ssl.items()}
    return Address(known.url, {**ours, **options}, tls)


def _as_python(requirement: str) -> str:
    """Celery's own URLs say CERT_REQUIRED."""
    return requirement.removeprefix("CERT_").lower()


def _understood(url: str, where: str) -> str:
    """A URL that is kombu's to understand, if it can be one: what a library says of another may show half a password."""
    if "://" not in url:
        raise BadSetting(f"{where}: expected the URL of a broker, such as redis://host:6379/0 or amqp://user:password@host//")
    for one in url.split(";"):
        try:
            sound = not urlsplit(one).fragment and (urlsplit(one).port or True)
        except ValueError:
            sound = False
        if not sound:
            raise BadSetting(f"{where}: it makes no sense; a password writes # as %23, / as %2F, ? as %3F and @ as %40")
    return url
