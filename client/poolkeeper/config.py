"""Server, token and workspace of a client: from the arguments, else the environment, else the file, else the defaults.

POOLKEEPER_TOKEN is a token; POOLKEEPER_TOKEN_FILE is the path of a file with nothing but the token.

The file is `~/.config/poolkeeper/config.json` (below XDG_CONFIG_HOME, if that is set), with `url`, `token` and `workspace`. Its
token is only for its own URL: with another URL it is not used, so that no other server gets it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from poolkeeper.errors import PoolkeeperError

URL = "http://127.0.0.1:8080"
PREFIX = "/api/v1"
"""The beginning of the path of every call."""
WORKSPACE = "default"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The server, the token and the workspace of calls."""

    url: str = URL
    token: str | None = field(default=None, repr=False)
    workspace: str = WORKSPACE


def file_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file, which may not exist."""
    folder = environ.get("XDG_CONFIG_HOME") or ""
    base = Path(folder) if os.path.isabs(folder) else Path.home() / ".config"
    return base / "poolkeeper" / "config.json"


def read(
    url: str | None = None, token: str | None = None, workspace: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> Configuration:
    """Return the configuration: arguments before the environment before the file. An empty text counts as not set."""
    url, token = url or environ.get("POOLKEEPER_URL"), token or environ.get("POOLKEEPER_TOKEN") or _read_token(environ)
    workspace = workspace or environ.get("POOLKEEPER_WORKSPACE")
    stored = {} if url and token and workspace else read_file(file_path(environ))
    home = _normalize_url(stored.get("url") or URL)
    server = _normalize_url(url or home)
    if server == home:
        token = token or stored.get("token")
    return Configuration(server, (token or "").strip() or None, (workspace or stored.get("workspace") or WORKSPACE).strip())


def _read_token(environ: Mapping[str, str]) -> str | None:
    if not (path := environ.get("POOLKEEPER_TOKEN_FILE")):
        return None
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise PoolkeeperError(f"{path}, which POOLKEEPER_TOKEN_FILE names, cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PoolkeeperError(f"{path}, which POOLKEEPER_TOKEN_FILE names, is not text") from error


def read_file(path: Path) -> dict[str, str]:
    """Return the fields of the file; empty if there is no file."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PoolkeeperError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PoolkeeperError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values() if value is not None):
        raise PoolkeeperError(f"{path} is not an object of url, token and workspace")
    return {key: value for key, value in document.items() if value is not None}


def _normalize_url(url: str) -> str:
    """Return the URL without the prefix that the client adds to every call."""
    return url.strip().rstrip("/").removesuffix(PREFIX).rstrip("/")
