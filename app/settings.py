"""The process settings: read once, from a file and then from `POOLKEEPER_*` variables, and passed down from there.

The defaults and texts are here; `config/default.toml` and the reference page are generated from them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from app.domain import variable_names
from app.domain.field_types import TEN_YEARS_S
from app.domain.ledger_limits import LedgerLimits
from app.domain.setting_kinds import (
    BROKER,
    FILE,
    FLAG,
    FOLDER,
    HOST,
    TRACES,
    URL,
    InvalidSetting,
    SettingKind,
    choice_setting,
    int_setting,
    parse_setting,
    seconds_setting,
)

DEFAULT_FILE = Path(__file__).resolve().parent.parent / "config" / "default.toml"
_LEDGER = LedgerLimits()


def setting(default: Any, kind: SettingKind, text: str, *, section: str = "", in_repr: bool = True) -> Any:
    """Return a field of Settings with its kind and public text; `section` is given by the first field of a section."""
    return field(default=default, metadata={"kind": kind, "text": text, "section": section}, repr=in_repr)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the service, in the order of `config/default.toml`."""

    redis_url: str | None = setting(
        None,
        URL,
        "URL of Redis: `redis://host:port/db`, `rediss://` (TLS), `unix:///path/to/socket`, "
        "`redis+sentinel://host:port,host:port/service` or `redis+cluster://host:port,host:port`. Empty: an embedded "
        "server, which keeps its data in `data_dir`. If the URL has a password, set the variable instead of the file.",
        section="Redis",
        in_repr=False,
    )
    data_dir: Path = setting(  # noqa: RUF009 - a field, and paths do not change
        Path("data"),
        FOLDER,
        "Folder of the embedded server: its data, logs and socket. Only one service can use it at a time.",
    )
    appendfsync: str = setting(
        "everysec",
        choice_setting("everysec", "always", "no"),
        "When the embedded server writes a change to the disk. `everysec`: within a second, so a power cut may cost the "
        "last second; a crash of the process costs nothing. `always`: before every answer, which is slower. `no`: when "
        "the operating system does.",
    )
    redis_timeout_s: float = setting(
        5.0,
        seconds_setting(0.1),
        "Seconds that one call to Redis may take, retries included. After that the caller gets an error.",
    )
    replicas_acknowledge: int = setting(
        0,
        int_setting("replicas", least=0, most=100),
        "With Sentinel or Cluster: replicas that must confirm a change before the call is answered. With the number of "
        "all replicas, no answered grant is lost with the master. With fewer, or 0, a grant may be lost. While too few "
        "replicas confirm, calls are answered 503. A call waits for at most a quarter of `redis_timeout_s`.",
    )
    reconcile_interval_s: float = setting(
        2.0,
        seconds_setting(0.1),
        "Seconds between two reconciles of a workspace, if no nudge asks for one sooner. A reconcile enforces deadlines, "
        "decides preemptions and gives patience holds.",
        section="Periodic jobs",
    )
    shares_interval_s: float = setting(
        1.0,
        seconds_setting(0.1),
        "Seconds between two computations of the fair shares, in pools of the discipline `fair_share`.",
    )
    cleanup_interval_s: float = setting(
        5.0,
        seconds_setting(0.1),
        "Seconds between two searches for lapsed leases, waiters that are not polled, and ended requests whose retention "
        "is over.",
    )
    audit_interval_s: float = setting(
        600.0,
        seconds_setting(1),
        "Seconds between two audits: the accounts are computed again from the allocations and compared.",
    )
    history_interval_s: float = setting(
        60.0,
        seconds_setting(1),
        "Seconds between two samples of the use of each pool, by policy.",
    )
    history_kept: int = setting(
        720,
        int_setting("samples", most=10_000),
        "Samples of the use that are kept for each pool: 720 samples of a minute are 12 hours.",
    )
    retention_s: int = setting(
        _LEDGER.retention_s,
        int_setting("seconds", least=0, most=TEN_YEARS_S),
        "Seconds for which an ended request is kept; a rejected request is kept for one hour at most. 604800 is 7 days.",
        section="Kept records",
    )
    events_kept: int = setting(
        _LEDGER.events_kept,
        int_setting("events", most=10**9),
        "Events that are kept for each workspace. Older events are deleted.",
    )
    idempotency_ttl_s: int = setting(
        _LEDGER.idempotency_ttl_s,
        int_setting("seconds", most=TEN_YEARS_S),
        "Seconds for which the answer to an idempotency key is remembered. 86400 is a day.",
    )
    chunk: int = setting(
        _LEDGER.chunk,
        int_setting("requests", most=1000),
        "Requests that one script processes before it leaves the rest as unfinished work.",
    )
    log_level: str = setting(
        "info",
        choice_setting("debug", "info", "warning", "error"),
        "Least severe level of the lines that are logged.",
        section="Logs and traces",
    )
    log_format: str = setting(
        "json",
        choice_setting("json", "text"),
        "Format of a log line. `json`: an object for programs. `text`: for people.",
    )
    access_log_slow_ms: int = setting(
        500,
        int_setting("milliseconds", least=0, most=TEN_YEARS_S),
        "Milliseconds after which a request is slow. The access log has each slow request, and each that is answered 400 "
        "or above. The wait of a long poll does not count. 0: every request is logged.",
    )
    access_log_sample_percent: int = setting(
        0,
        int_setting("percent", least=0, most=100),
        "Percentage of all other requests that the access log has, chosen at random. 0: none.",
    )
    log_file_bytes: int = setting(
        20 * 2**20,
        int_setting("bytes", least=0, most=2**40),
        "Bytes after which a log file in `data_dir/log` is rotated, under `poolkeeperd up`. 0: files are not rotated; use"
        " logrotate with `copytruncate`.",
    )
    log_files_kept: int = setting(
        3,
        int_setting("files", least=0, most=100),
        "Rotated files that are kept for each log: `<name>.log.1`, `<name>.log.2` and so on.",
    )
    traces: bool = setting(
        False,
        TRACES,
        "If true, a span is sent by OpenTelemetry for every request, task and script. This needs the extra `otel`; the "
        "variables `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_TRACES_SAMPLER` set the target and the sampling.",
    )
    host: str = setting(
        "127.0.0.1",
        HOST,
        "Address on which the service listens. On an address that is not loopback, the service starts only if a token "
        "exists or `require_token` is set.",
        section="HTTP API",
    )
    port: int = setting(
        8080,
        int_setting("a port", least=0, most=65535),
        "Port on which the service listens. 0: a free port.",
    )
    require_token: bool = setting(
        False,
        FLAG,
        "If true, every call needs a token, also on a loopback address while no token exists.",
    )
    rate_per_s: int = setting(
        0,
        int_setting("requests a second", least=0, most=10**6),
        "Calls a second that one token may make, with bursts of as many. A call beyond this rate is answered 429. 0: no bound.",
    )
    max_body_bytes: int = setting(
        4 * 2**20,
        int_setting("bytes", least=1024, most=2**30),
        "Bytes of the largest body of a batch, a declaration or a dry run. Other bodies have smaller limits of their own.",
    )
    api_processes: int = setting(
        2,
        int_setting("processes", most=64),
        "Processes that serve the HTTP API.",
    )
    api_threads: int = setting(
        640,
        int_setting("threads", least=8, most=10_000),
        "Threads of each API process. Long polls and event streams may hold three quarters of them, open dashboard pages "
        "a sixteenth, large bodies a twentieth. All other calls use the rest.",
    )
    token_share_percent: int = setting(
        25,
        int_setting("percent", most=100),
        "Percentage of each kind of wait slot of a process, and of its time for dry runs, that one token may have. "
        "Without tokens all callers together may have all of it.",
    )
    broker_url: str | None = setting(
        None,
        BROKER,
        "URL of the broker of the periodic jobs of Poolkeeper: `redis://`, `rediss://` or `redis+socket://`. Empty: the "
        "Redis of `redis_url`, which cannot be a cluster then.",
        section="Workers",
        in_repr=False,
    )
    worker_processes: int = setting(
        2,
        int_setting("processes", most=64),
        "Processes of a worker. With one process, a planning pass waits while an audit runs.",
    )
    brokers: Path | None = setting(  # noqa: RUF009 - a field, and paths do not change
        None,
        FILE,
        "Path of the file that names the brokers of your own Celery apps, one for each workspace with parked tasks. "
        "Empty: the file `brokers.toml` beside `default.toml`. Its comments explain the fields.",
    )

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
