"""Settings: defaults in the code, a file over them, variables over both, and one line for what cannot be used."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from app import settings
from app.domain import setting_kinds
from app.domain.setting_kinds import InvalidSetting
from app.settings import DEFAULT_FILE, Settings


def written(folder: Path, text: str) -> Path:
    path = folder / "poolkeeper.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEFAULT_FILE", tmp_path / "absent.toml")
    assert Settings.read(environ={}) == Settings()


def test_a_file_goes_before_the_defaults_and_variables_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'chunk = 50\nlog_level = "debug"\nredis_timeout_s = 0.5')
    read = Settings.read(path, {"POOLKEEPER_CHUNK": "60", "POOLKEEPER_REDIS_URL": "redis://h", "POOLKEEPER_URL": "unrelated"})
    assert read == Settings(chunk=60, log_level="debug", redis_timeout_s=0.5, redis_url="redis://h")


def test_the_file_may_be_named_by_a_variable_and_an_argument_goes_before_it(tmp_path: Path) -> None:
    environ = {"POOLKEEPER_CONFIG": str(written(tmp_path, "chunk = 50"))}
    assert Settings.read(environ=environ) == Settings(chunk=50)
    assert Settings.read(DEFAULT_FILE, environ) == Settings()


def test_each_setting_can_be_a_variable() -> None:
    environ = {
        "POOLKEEPER_REDIS_URL": "",
        "POOLKEEPER_DATA_DIR": "/srv/poolkeeper",
        "POOLKEEPER_APPENDFSYNC": "always",
        "POOLKEEPER_REDIS_TIMEOUT_S": "2.5",
        "POOLKEEPER_REPLICAS_ACKNOWLEDGE": "1",
        "POOLKEEPER_RECONCILE_INTERVAL_S": "0.5",
        "POOLKEEPER_SHARES_INTERVAL_S": "0.3",
        "POOLKEEPER_CLEANUP_INTERVAL_S": "1",
        "POOLKEEPER_AUDIT_INTERVAL_S": "60",
        "POOLKEEPER_HISTORY_INTERVAL_S": "10",
        "POOLKEEPER_HISTORY_KEPT": "9",
        "POOLKEEPER_RETENTION_S": "0",
        "POOLKEEPER_EVENTS_KEPT": "10",
        "POOLKEEPER_IDEMPOTENCY_TTL_S": "60",
        "POOLKEEPER_CHUNK": "1000",
        "POOLKEEPER_LOG_LEVEL": "error",
        "POOLKEEPER_LOG_FORMAT": "text",
        "POOLKEEPER_ACCESS_LOG_SLOW_MS": "20",
        "POOLKEEPER_ACCESS_LOG_SAMPLE_PERCENT": "5",
        "POOLKEEPER_LOG_FILE_BYTES": "0",
        "POOLKEEPER_LOG_FILES_KEPT": "0",
        "POOLKEEPER_TRACES": "false",
        "POOLKEEPER_HOST": "::1",
        "POOLKEEPER_PORT": "0",
        "POOLKEEPER_REQUIRE_TOKEN": "yes",
        "POOLKEEPER_RATE_PER_S": "50",
        "POOLKEEPER_MAX_BODY_BYTES": "1024",
        "POOLKEEPER_API_PROCESSES": "1",
        "POOLKEEPER_API_THREADS": "8",
        "POOLKEEPER_TOKEN_SHARE_PERCENT": "50",
        "POOLKEEPER_BROKER_URL": "redis://b",
        "POOLKEEPER_WORKER_PROCESSES": "4",
        "POOLKEEPER_BROKERS": "~/brokers.toml",
    }
    assert environ.keys() == {f"POOLKEEPER_{each.name.upper()}" for each in fields(Settings)}
    ledger = (None, Path("/srv/poolkeeper"), "always", 2.5, 1, 0.5, 0.3, 1.0, 60.0, 10.0, 9, 0, 10, 60, 1000)
    brokers = Path("~/brokers.toml").expanduser()
    service = ("error", "text", 20, 5, 0, 0, False, "::1", 0, True, 50, 1024, 1, 8, 50, "redis://b", 4, brokers)
    read = Settings.read(environ=environ)
    assert tuple(getattr(read, field.name) for field in fields(Settings)) == (*ledger, *service)


def test_traces_are_refused_where_what_makes_them_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_kinds, "find_spec", lambda module: None)
    with pytest.raises(InvalidSetting, match=r"true only with the extra: pip install 'poolkeeper-server\[otel\]', not '1'"):
        Settings.read(environ={"POOLKEEPER_TRACES": "1"})
    assert not Settings.read(environ={"POOLKEEPER_TRACES": "0"}).traces
    monkeypatch.setattr(setting_kinds, "find_spec", lambda module: module)
    assert Settings.read(environ={"POOLKEEPER_TRACES": "1"}).traces


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().chunk = 1  # type: ignore[misc]


def test_a_password_is_not_printed_with_the_settings() -> None:
    assert "secret" not in repr(Settings(redis_url="redis://:secret@h"))


REFUSED = [
    ("chunks = 1", "chunks: there is no such setting; known are redis_url, data_dir,"),
    ("[redis]\nurl = 1", "redis: there is no such setting"),
    ('chunk = "many"', "chunk: expected a whole number of requests, from 1 to 1000, not 'many'"),
    ("chunk = 0", "chunk: expected a whole number of requests, from 1 to 1000, not 0"),
    ("chunk = 1001", "chunk: expected a whole number of requests, from 1 to 1000, not 1001"),
    ("chunk = 1.0", "chunk: expected a whole number of requests, from 1 to 1000, not 1.0"),
    ("chunk = true", "chunk: expected a whole number of requests, from 1 to 1000, not True"),
    ("retention_s = -1", "retention_s: expected a whole number of seconds, from 0 to 315360000, not -1"),
    ("events_kept = 1000000000000", "events_kept: expected a whole number of events, from 1 to 1000000000, not 1000000000000"),
    ("redis_timeout_s = 0", "redis_timeout_s: expected a number of seconds, from 0.1 to 315360000, not 0"),
    ("redis_timeout_s = nan", "redis_timeout_s: expected a number of seconds, from 0.1 to 315360000, not nan"),
    ("redis_timeout_s = inf", "redis_timeout_s: expected a number of seconds, from 0.1 to 315360000, not inf"),
    ("redis_timeout_s = true", "redis_timeout_s: expected a number of seconds, from 0.1 to 315360000, not True"),
    ("redis_url = 6379", "redis_url: expected a URL, or nothing for the embedded server, not 6379"),
    ('data_dir = ""', "data_dir: expected the path of a folder, not ''"),
    ('appendfsync = "sometimes"', "appendfsync: expected one of everysec, always, no, not 'sometimes'"),
    ("brokers = 1", "brokers: expected the path of a file, or nothing for the one beside default.toml, not 1"),
    ('log_level = ["info"]', "log_level: expected one of debug, info, warning, error, not ['info']"),
    ("chunk =", "is not TOML: "),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_a_file_with_a_wrong_setting_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidSetting) as refusal:
        Settings.read(path, {})
    assert str(refusal.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("POOLKEEPER_CHUNK", "many"),
        ("POOLKEEPER_CHUNK", ""),
        ("POOLKEEPER_CHUNK", "1.5"),
        ("POOLKEEPER_REDIS_TIMEOUT_S", "soon"),
        ("POOLKEEPER_REDIS_TIMEOUT_S", "inf"),
        ("POOLKEEPER_LOG_LEVEL", "loud"),
        ("POOLKEEPER_DATA_DIR", ""),
        ("POOLKEEPER_HOST", " "),
        ("POOLKEEPER_HOST", "here and there"),
        ("POOLKEEPER_PORT", "65536"),
        ("POOLKEEPER_PORT", "-1"),
        ("POOLKEEPER_REQUIRE_TOKEN", "perhaps"),
        ("POOLKEEPER_API_THREADS", "7"),
        ("POOLKEEPER_LOG_FORMAT", "xml"),
        ("POOLKEEPER_ACCESS_LOG_SLOW_MS", "-1"),
        ("POOLKEEPER_ACCESS_LOG_SAMPLE_PERCENT", "101"),
        ("POOLKEEPER_LOG_FILE_BYTES", "20M"),
        ("POOLKEEPER_LOG_FILES_KEPT", "101"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{name}: expected .*, not '{text}'$"):
        Settings.read(environ={name: text})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    absent, latin = tmp_path / "absent.toml", tmp_path / "latin.toml"
    latin.write_bytes(b'data_dir = "\xe4"')
    with pytest.raises(InvalidSetting, match=r"absent\.toml: cannot be read: No such file"):
        Settings.read(environ={"POOLKEEPER_CONFIG": str(absent)})
    with pytest.raises(InvalidSetting, match=r"latin\.toml: is not UTF-8"):
        Settings.read(latin, {})


MISSPELT = [
    ("PROT", "PORT"),
    ("REQUIRE_TOKENS", "REQUIRE_TOKEN"),
    ("REDIS_URI", "REDIS_URL"),
    ("APITHREADS", "API_THREADS"),
    ("port", "PORT"),
    ("TOKNE", "TOKEN"),
]


@pytest.mark.parametrize(("name", "near"), MISSPELT)
def test_an_unknown_variable_is_refused_with_the_similar_one(name: str, near: str) -> None:
    message = f"^POOLKEEPER_{name}: there is no such variable; did you mean POOLKEEPER_{near}\\?$"
    with pytest.raises(InvalidSetting, match=message):
        Settings.read(environ={f"POOLKEEPER_{name}": "1"})


def test_each_unknown_variable_is_named() -> None:
    with pytest.raises(InvalidSetting) as refusal:
        Settings.read(environ={"POOLKEEPER_ZQX": "1", "POOLKEEPER_HOTS": "h", "POOLKEEPER_CHUNK": "20"})
    assert str(refusal.value) == (
        "POOLKEEPER_HOTS: there is no such variable; did you mean POOLKEEPER_HOST? "
        "POOLKEEPER_ZQX: there is no such variable; variables of other programs need another prefix."
    )


OTHERS = ["POOLKEEPER_URL", "POOLKEEPER_TOKEN", "POOLKEEPER_TOKEN_FILE", "MY_POOLKEEPER_PORTT", "PORTT", "_POOLKEEPER_COMPLETE"]


@pytest.mark.parametrize("name", OTHERS)
def test_variables_of_others_do_not_matter(name: str) -> None:
    assert Settings.read(environ={name: "x"}) == Settings()


POD = {
    "POOLKEEPER_SERVICE_HOST": "10.0.0.1",
    "POOLKEEPER_SERVICE_PORT": "8080",
    "POOLKEEPER_SERVICE_PORT_HTTP": "8080",
    "POOLKEEPER_PORT": "tcp://10.0.0.1:8080",
    "POOLKEEPER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "POOLKEEPER_PORT_8080_TCP_PROTO": "tcp",
    "POOLKEEPER_PORT_8080_TCP_PORT": "8080",
    "POOLKEEPER_PORT_8080_TCP_ADDR": "10.0.0.1",
    "POOLKEEPER_REDIS_SERVICE_HOST": "10.0.0.2",
    "POOLKEEPER_REDIS_SERVICE_PORT": "6379",
    "POOLKEEPER_REDIS_PORT": "tcp://10.0.0.2:6379",
}
"""The variables that Kubernetes sets in every pod for services with the names `poolkeeper` and `poolkeeper-redis`."""


def test_service_links_are_no_settings() -> None:
    assert Settings.read(environ=POD) == Settings()
    assert Settings.read(environ=POD | {"POOLKEEPER_PORT": "8102"}).port == 8102


def test_links_of_an_old_docker_are_no_settings() -> None:
    link = {"POOLKEEPER_PORT": "tcp://172.17.0.2:8080", "POOLKEEPER_NAME": "/web/poolkeeper", "POOLKEEPER_ENV_GPG_KEY": "x"}
    assert Settings.read(environ=link) == Settings()


@pytest.mark.parametrize("name", ["SERVICE_PORT", "SERVICE_HOST", "REDIS_SERVICE_PORT", "REDIS_PORT", "NAME", "PORT_8080_TCP"])
def test_a_part_of_a_service_link_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"POOLKEEPER_{name}: there is no such variable"):
        Settings.read(environ={f"POOLKEEPER_{name}": "8102"})
