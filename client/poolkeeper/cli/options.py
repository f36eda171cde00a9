"""The global options, before or after the verb, and the client made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

if TYPE_CHECKING:
    from poolkeeper import Client

FORMATS = ("table", "wide", "json", "yaml", "name")


@dataclass
class GlobalOptions:
    """The values of the global options. None leaves a value to the environment and the config file."""

    url: str | None = None
    token: str | None = None
    workspace: str | None = None
    output: str = "table"
    headers: bool = True

    @property
    def for_programs(self) -> bool:
        """True if a program reads stdout."""
        return self.output in ("json", "yaml", "name")


def current_options() -> GlobalOptions:
    """Return the global options of this run."""
    return click.get_current_context().find_root().ensure_object(GlobalOptions)


def client(**settings: Any) -> Client:
    """Return a client for the options, the environment and the config file; `settings` go to its constructor."""
    from poolkeeper import Client

    chosen = current_options()
    return Client(url=chosen.url, token=chosen.token, workspace=chosen.workspace, **settings)


def call(method: str, path: str, **arguments: Any) -> Any:
    """Make one call, and return the decoded answer."""
    return client().call(method, path, **arguments)


def path(*parts: str) -> str:
    """Return a path of the API; each part is quoted."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def verb_options() -> list[click.Option]:
    """Return the global options of a verb. After the verb they win over those before the noun."""
    return [_option(*words, **how) for words, how in _OPTIONS]


def root_options() -> list[click.Option]:
    """Return the global options of the root, which also read the environment."""
    options = verb_options()
    for option in options:
        if option.name in ("url", "token", "workspace"):
            option.envvar, option.show_envvar = f"POOLKEEPER_{option.name.upper()}", True
    return options


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value:
        chosen = ctx.find_root().ensure_object(GlobalOptions)
        if param.name == "no_headers":
            chosen.headers = False
        else:
            setattr(chosen, str(param.name), value)
    return value


def _option(*words: str, **how: Any) -> click.Option:
    return click.Option(words, expose_value=False, callback=_store, **how)


_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("-o", "--output"),
        {"type": click.Choice(FORMATS), "help": "Format: table (default) or wide for people, the others for programs."},
    ),
    (("--no-headers",), {"is_flag": True, "help": "Print tables without their titles."}),
    (("--url",), {"metavar": "URL", "help": "Address of the service, such as http://127.0.0.1:8080."}),
    (("--token",), {"metavar": "TOKEN", "help": "Token of the caller; better stored by `poolkeeper login`."}),
    (("--workspace",), {"metavar": "NAME", "help": "Workspace (tenant) of the call."}),
)
