"""Files that are generated from the tables in the code: pages of the documentation, and the client's copies of server facts.

`make generated` writes them again; a test fails if one of them is not as it would be written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from app.domain.pool_setting import PoolSetting
from app.domain.pool_settings import ACCOUNT_SETTINGS, SETTINGS
from app.service.pools_file_schema import pools_file_schema
from app.store import key_writers
from app.store.lua_constants import LuaContractError
from tests.support import openapi_examples, reference_pages
from tests.support.paths import ROOT
from tests.support.reference_pages.llms_page import llms_file
from tests.support.reference_pages.settings_page import defaults_file

HEAD = "Generated from `{source}` by `make generated`; edit the table there."


def pools_schema() -> str:
    """Return the JSON schema of the pools file."""
    return json.dumps(pools_file_schema(), indent=2, ensure_ascii=False) + "\n"


def client_pool_settings() -> str:
    """Return the module with which the command line completes, reads and shows the settings."""
    pool_only = [row for row in SETTINGS.values() if not row.is_inheritable]
    amounts = [row.name for row in SETTINGS.values() if TypeAdapter(row.values).json_schema()["type"] == "object"]
    lines = [
        '"""The names, choices and defaults of the settings of pools, groups and policies.',
        "",
        HEAD.format(source="app/domain/pool_settings.py"),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "",
        "ACCOUNT_SETTINGS: Mapping[str, tuple[str, ...]] = {",
        *(f"    {_quoted(row.name)}: {_words(row)}," for row in ACCOUNT_SETTINGS.values()),
        "}",
        '"""Settings that groups and policies have, too → their choices; empty if any value of the type is allowed."""',
        "",
        "POOL_SETTINGS: Mapping[str, tuple[str, ...]] = {",
        *(f"    {_quoted(row.name)}: {_words(row)}," for row in pool_only),
        "    **ACCOUNT_SETTINGS,",
        "}",
        "",
        f"AMOUNT_SETTINGS = {_tuple(amounts)}",
        '"""Settings whose values are amounts: `gpu=2,mcpu=4000`."""',
        "",
        "DISCIPLINE_DEFAULTS: Mapping[str, Mapping[str, int | str]] = {",
        *(f"    {_quoted(row.name)}: {_dict(row.by_discipline)}," for row in SETTINGS.values() if row.by_discipline),
        "}",
        '"""Setting → its default in each discipline, if the discipline decides it."""',
        "",
        "DEFAULTS: Mapping[str, str | int | float | bool | Mapping[str, int] | None] = {",
        *(f"    {_quoted(row.name)}: {_literal(row.default)}," for row in SETTINGS.values()),
        "}",
        '"""Setting → its default; None if the discipline decides it, or if there is none."""',
    ]
    return "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    return TypeAdapter(Any).dump_json(value).decode()


def _literal(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(word: str) -> str:
    return f'"{word}"'


def _words(row: PoolSetting) -> str:
    return _tuple(["true", "false"] if row.values is bool else row.choices)


def _tuple(words: Any) -> str:
    inside = ", ".join(_quoted(word) for word in words)
    return f"({inside},)" if len(words) == 1 else f"({inside})"


def _dict(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_quoted(name)}: {_json(value)}" for name, value in values.items()) + "}"


GENERATED: Mapping[str, Callable[[], str]] = {
    "app/api/examples.json": openapi_examples.examples_file,
    "docs/internals/redis-keys.md": key_writers.page,
    **reference_pages.PAGES,
    "client/poolkeeper/cli/setting_table.py": client_pool_settings,
    "config/default.toml": defaults_file,
    "config/pools.schema.json": pools_schema,
    "docs/llms.txt": llms_file,
}
"""Path → what is written there. The last one is made from the pages before it."""


def main() -> None:
    """Write every generated file, and name those that change. A fault in a table or a script ends it with one line."""
    for path, content in GENERATED.items():
        file = ROOT / path
        try:
            text = content()
        except (LuaContractError, openapi_examples.MissingCall) as error:
            sys.exit(f"error: {error}")
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
