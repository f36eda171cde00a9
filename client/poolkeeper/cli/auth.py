"""`poolkeeper login`, `logout` and `whoami`: the identity of the caller, and the file that stores it."""

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
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import CommandError, print_message

if TYPE_CHECKING:
    from poolkeeper import Client


@click.command("whoami", cls=VerbCommand, example="poolkeeper whoami")
def whoami() -> None:
    """Show the caller that the service sees, and its permissions."""
    client = options.client()
    caller = client.call("GET", "/whoami")
    output.show_item(caller, str(caller["name"]), lambda: output.show_fields(_facts(caller, client.url)))


@click.command(
    "login",
    cls=VerbCommand,
    example="poolkeeper login --url https://pools.example.org --workspace research\n"
    "pass show poolkeeper | poolkeeper login --url https://pools.example.org",
)
def login() -> None:
    """Check --url, --token and --workspace with the service, and store them for later calls.

    Without --token, the command asks for the token; without a terminal it reads the token from stdin. An empty token is none.
    """
    chosen = options.current_options()
    if chosen.token is None:
        chosen.token = _token()
    client = _client_of(chosen)
    if chosen.token and client.url.startswith("http://") and not _is_loopback(client.url):
        print_message(f"{client.url} is not encrypted: the token can be read on its way through the network")
    caller = client.call("GET", "/whoami")
    path = _write_configuration({"url": client.url, "token": chosen.token, "workspace": client.workspace})
    output.show_result(
        caller, str(caller["name"]), f"{caller['name']} at {client.url}, workspace {client.workspace}; stored in {path}"
    )


@click.command("logout", cls=VerbCommand, example="poolkeeper logout")
def logout() -> None:
    """Remove the stored address, token and workspace. The token stays valid until it is revoked."""
    from poolkeeper.config import file_path

    path = file_path()
    try:
        path.unlink()
    except FileNotFoundError:
        output.show_result(None, str(path), "nothing was stored")
    except OSError as error:
        raise CommandError(f"{path} cannot be removed: {error.strerror}") from error
    else:
        output.show_result(None, str(path), f"removed {path}")


def _token() -> str:
    if is_terminal(sys.stdin):
        token: str = click.prompt("Token (empty for none)", hide_input=True, default="", show_default=False, err=True)
        return token.strip()
    return sys.stdin.readline().strip() if sys.stdin else ""


def _is_loopback(url: str) -> bool:
    from urllib.parse import urlsplit

    return (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")


def _client_of(chosen: options.GlobalOptions) -> Client:
    """Return a client with this token; a stored token is not used."""
    from dataclasses import replace

    client = options.client()
    client.configuration, client.rereads_token = replace(client.configuration, token=chosen.token or None), False
    return client


def _write_configuration(configuration: Mapping[str, str | None]) -> Path:
    """Write the file atomically, readable by its owner alone."""
    from poolkeeper.config import file_path

    path = file_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # made with mode 0600
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump({key: value for key, value in configuration.items() if value}, file, indent=2)
                file.write("\n")
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _facts(caller: Mapping[str, Any], url: str) -> list[tuple[str, Any]]:
    return [
        ("Name", caller["name"]),
        ("Service", url),
        ("Workspace", caller["workspace"]),
        ("Roles", ", ".join(caller["roles"])),
        ("Permissions", ", ".join(caller["permissions"])),
        ("Workspaces", ", ".join(caller["workspaces"]) or "all"),
        ("Components", ", ".join(caller["components"]) or "all"),
    ]
