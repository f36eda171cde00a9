"""`poolkeeper login`, `logout` and `whoami`: who you are, and where that is kept."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poolkeeper.cli import options, output
from poolkeeper.cli.command_base import Verb
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import Failed, say

if TYPE_CHECKING:
    from poolkeeper import Client


@click.command("whoami", cls=Verb, example="poolkeeper whoami")
def whoami() -> None:
    """Who the service says you are, and what you may."""
    client = options.client()
    found = client.call("GET", "/whoami")
    output.one(found, str(found["name"]), lambda: output.fields(_facts(found, client.url)))


@click.command(
    "login",
    cls=Verb,
    example="poolkeeper login --url https://pools.example.org --workspace research\n"
    "pass show poolkeeper | poolkeeper login --url https://pools.example.org",
)
def login() -> None:
    """Keep --url, --token and --workspace for the next time, once the service has been asked whether they are right.

    A token that is not given is asked for, or read from stdin if that is no terminal; an empty one is none.
    """
    given = options.said()
    if given.token is None:
        given.token = _token()
    client = _client_of(given)
    if given.token and client.url.startswith("http://") and not _is_here(client.url):
        say(f"{client.url} is not encrypted: whoever is on the way can read the token")
    found = client.call("GET", "/whoami")
    kept = _keep({"url": client.url, "token": given.token, "workspace": client.workspace})
    output.done(found, str(found["name"]), f"{found['name']} at {client.url}, workspace {client.workspace}; kept in {kept}")


@click.command("logout", cls=Verb, example="poolkeeper logout")
def logout() -> None:
    """Forget what `login` kept; the token stays valid until it is revoked."""
    from poolkeeper.config import file_path

    path = file_path()
    try:
        path.unlink()
    except FileNotFoundError:
        output.done(None, str(path), "there was nothing to forget")
    except OSError as error:
        raise Failed(f"{path} cannot be removed: {error.strerror}") from error
    else:
        output.done(None, str(path), f"removed {path}")


def _token() -> str:
    if is_terminal(sys.stdin):
        asked: str = click.prompt("Token (empty for none)", hide_input=True, default="", show_default=False, err=True)
        return asked.strip()
    return sys.stdin.readline().strip() if sys.stdin else ""


def _is_here(url: str) -> bool:
    from urllib.parse import urlsplit

    return (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")


def _client_of(given: options.Globals) -> Client:
    """A client with this token and no other: what was kept before does not count."""
    from dataclasses import replace

    client = options.client()
    client.configuration = replace(client.configuration, token=given.token or None)
    return client


def _keep(said: Mapping[str, str | None]) -> Path:
    """Write the file, readable for its owner alone, all of it or nothing."""
    from poolkeeper.config import file_path

    path = file_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # made with mode 0600
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump({key: value for key, value in said.items() if value}, file, indent=2)
                file.write("\n")
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}") from error
    return path


def _facts(found: Mapping[str, Any], url: str) -> list[tuple[str, Any]]:
    return [
        ("Name", found["name"]),
        ("Service", url),
        ("Workspace", found["workspace"]),
        ("Roles", ", ".join(found["roles"])),
        ("Permissions", ", ".join(found["permissions"])),
        ("Workspaces", ", ".join(found["workspaces"]) or "all"),
        ("Components", ", ".join(found["components"]) or "all"),
    ]
