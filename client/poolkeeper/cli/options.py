"""The options every verb takes, before it or after it, and the connection made from them."""

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
    """What was said for every verb; None is left to the environment and the config file."""

    url: str | None = None
    token: str | None = None
    workspace: str | None = None
    output: str = "table"
    headers: bool = True

    @property
    def for_programs(self) -> bool:
        """Whether stdout is for a program to read."""
        return self.output in ("json", "yaml", "name")


def current_options() -> GlobalOptions:
    """The global options of this run."""
    return click.get_current_context().find_root().ensure_object(GlobalOptions)


def client(**settings: Any) -> Client:
    """A client as the options, the environment and the config file say; `more` goes to its constructor."""
    from poolkeeper import Client

    chosen = current_options()
    return Client(url=chosen.url, token=chosen.token, workspace=chosen.workspace, **settings)


def call(method: str, path: str, **arguments: Any) -> Any:
    """One call to the service; the answer decoded."""
    return client().call(method, path, **arguments)


def path(*parts: str) -> str:
    """A path of the API from its parts, each quoted."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def verb_options() -> list[click.Option]:
    """As those of the root; said after the verb they win."""
    return [_option(*words, **how) for words, how in _OPTIONS]


def root_options() -> list[click.Option]:
    """Those before the noun, which also listen to the environment."""
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
    (("-o", "--output"), {"type": click.Choice(FORMATS), "help": "How to print: table (the default), wide, or for programs."}),
    (("--no-headers",), {"is_flag": True, "help": "Tables without their first line."}),
    (("--url",), {"metavar": "URL", "help": "Where the service is, such as http://127.0.0.1:8080."}),
    (("--token",), {"metavar": "TOKEN", "help": "Who you are; better kept by `poolkeeper login`."}),
    (("--workspace",), {"metavar": "NAME", "help": "The tenant to look at."}),
)
