"""The server, the token and the workspace of a client: the precedence of their sources, and the servers that get the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest
from poolkeeper import Client, errors
from poolkeeper.config import Configuration, file_path, read


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a user with a stored login."""
    path = file_path({"XDG_CONFIG_HOME": str(tmp_path)})
    path.parent.mkdir()
    path.write_text(json.dumps({"url": "https://ours/", "token": "stored", "workspace": "blue"}))
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_nothing_is_set() -> None:
    assert read(environ={}) == Configuration("http://127.0.0.1:8080", None, "default")


def test_the_file_is_read(environ: dict[str, str]) -> None:
    assert read(environ=environ) == Configuration("https://ours", "stored", "blue")


def test_a_variable_goes_before_it(environ: dict[str, str]) -> None:
    environ |= {"POOLKEEPER_TOKEN": " new\n", "POOLKEEPER_WORKSPACE": "red"}
    assert read(environ=environ) == Configuration("https://ours", "new", "red")


def test_what_is_given_goes_before_both(environ: dict[str, str]) -> None:
    environ |= {"POOLKEEPER_URL": "http://a", "POOLKEEPER_TOKEN": "b", "POOLKEEPER_WORKSPACE": "c"}
    assert read("http://x/", "y", "z", environ=environ) == Configuration("http://x", "y", "z")


def test_an_empty_variable_is_not_set(environ: dict[str, str]) -> None:
    environ |= {"POOLKEEPER_URL": "", "POOLKEEPER_TOKEN": "", "POOLKEEPER_WORKSPACE": ""}
    assert read(environ=environ) == Configuration("https://ours", "stored", "blue")


@pytest.mark.parametrize(("url", "token"), [("https://ours", "stored"), ("https://ours/", "stored"), ("https://theirs", None)])
def test_a_stored_token_goes_to_its_own_server_only(environ: dict[str, str], url: str, token: str | None) -> None:
    assert read(environ=environ | {"POOLKEEPER_URL": url}).token == token
    assert read(url, environ=environ).token == token


def test_without_a_url_in_the_file_its_token_is_for_the_default(environ: dict[str, str]) -> None:
    file_path(environ).write_text('{"token": "stored", "url": null}')
    assert read(environ=environ) == Configuration("http://127.0.0.1:8080", "stored", "default")
    assert read("http://other", environ=environ).token is None


def test_the_file_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert file_path({}) == Path("/home/ada/.config/poolkeeper/config.json")
    assert file_path({"XDG_CONFIG_HOME": "relative/is/not/allowed"}) == Path("/home/ada/.config/poolkeeper/config.json")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("{", "is not JSON"), ("[]", "is not an object of"), ('{"token": 7}', "is not an object of"), ("\xff", "is not JSON")],
    ids=["broken", "a list", "a number", "not UTF-8"],
)
def test_a_broken_file_is_one_line(environ: dict[str, str], text: str, wrong: str) -> None:
    file_path(environ).write_bytes(text.encode("latin-1"))
    with pytest.raises(errors.PoolkeeperError, match=wrong) as caught:
        read(environ=environ)
    assert str(file_path(environ)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_file_does_not_matter_when_all_is_given(environ: dict[str, str]) -> None:
    file_path(environ).write_text("{")
    assert read("http://x", "y", "z", environ=environ) == Configuration("http://x", "y", "z")


def _refuse(*_: object, **__: object) -> NoReturn:
    raise ConnectionRefusedError


def test_a_token_is_not_shown_where_a_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.create_connection", _refuse)
    with Client("http://127.0.0.1:1", "pk_secret", tries=1) as client, pytest.raises(errors.Unavailable) as failed:
        client.pools()
    shown = [repr(value) for entry in failed.traceback for value in entry.frame.f_locals.values()]
    assert any("***" in value for value in shown)
    assert not any("pk_secret" in value for value in shown)


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Client("http://x", "secret").configuration)


def test_a_token_file_goes_before_the_stored_token(environ: dict[str, str], tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(" mounted\n")
    environ |= {"POOLKEEPER_TOKEN_FILE": str(secret)}
    assert read(environ=environ).token == "mounted"
    assert read(environ=environ | {"POOLKEEPER_TOKEN": "variable"}).token == "variable"
    assert read(environ=environ | {"POOLKEEPER_TOKEN_FILE": ""}).token == "stored"


def test_a_token_file_that_cannot_be_read_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "cannot be read: No such file"), (tmp_path / "bytes", "is not text")):
        (tmp_path / "bytes").write_bytes(b"\xff\xfe")
        with pytest.raises(errors.PoolkeeperError, match=message):
            read(environ=environ | {"POOLKEEPER_TOKEN_FILE": str(path)})
