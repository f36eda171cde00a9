"""Declarations on paper: YAML read strictly, so that nothing a person wrote is lost silently, and written as a person would."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from poolkeeper.cli.exits import Exit
from poolkeeper.cli.kinds import parse_amounts
from poolkeeper.cli.refusals import Failed

if TYPE_CHECKING:
    import yaml

AMOUNTS = ("capacity", "reserved", "limit")


def read(name: str) -> dict[str, Any]:
    """The declaration in a file, or on stdin; amounts may be written `gpu=8,mcpu=64000`."""
    where = "stdin" if name == "-" else name
    found = _parsed(_text_of(name, where), where)
    if found is None:
        raise _malformed(where, "is empty; `pools: []` says that there are none")
    if not isinstance(found, dict):
        raise _malformed(where, "is no declaration; it begins with `pools:`")
    declared: dict[str, Any] = _plain(found, where, "")
    return declared


def written(declared: Mapping[str, Any]) -> str:
    """A declaration as YAML: amounts on one line, an empty line between pools."""
    import yaml

    class Paper(yaml.SafeDumper):
        """Lists are indented, amounts stand in braces."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def amounts(dumper: yaml.SafeDumper, value: _Inline) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)

    Paper.add_representer(_Inline, amounts)
    dumped = yaml.dump(_inlined(declared), Dumper=Paper, sort_keys=False, allow_unicode=True, width=120)
    return re.sub(r"(?<!^pools:)\n(?=  - name:)", "\n\n", dumped, flags=re.MULTILINE)


class _Inline(dict[str, Any]):
    """A mapping to be written on one line."""


def _inlined(value: Any) -> Any:
    if isinstance(value, list):
        return [_inlined(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _Inline(each) if key in AMOUNTS and each else _inlined(each) for key, each in value.items()}


def _text_of(name: str, where: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read()
        with open(name, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise _malformed(where, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _malformed(where, "is not UTF-8 text") from error


def _parsed(text: str, where: str) -> Any:
    import yaml

    class Strict(yaml.SafeLoader):
        """YAML lets the last of two equal keys win; here that is an error."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise yaml.MarkedYAMLError(problem=f"{', '.join(sorted(twice))} is given twice", problem_mark=node.start_mark)
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep=True))

    Strict.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(text, Loader=Strict)
    except yaml.YAMLError as error:
        raise _malformed(where, _trouble(error)) from error


def _trouble(error: yaml.YAMLError) -> str:
    """One line of what YAML says in five."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return (f"line {mark.line + 1}: " if mark else "is not YAML: ") + str(problem or error).splitlines()[0]


def _plain(value: Any, where: str, field: str) -> Any:
    """The value as JSON has it; what JSON does not know, such as a date, is named."""
    if isinstance(value, dict):
        return {str(key): _amounts_or(key, each, where, f"{field}.{key}".lstrip(".")) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, where, f"{field}.{number}") for number, each in enumerate(value)]
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    raise _malformed(where, f"{field}: {value} is no value here; put it in quotes if it is a text")


def _amounts_or(key: Any, value: Any, where: str, field: str) -> Any:
    if key not in AMOUNTS or not isinstance(value, str):
        return _plain(value, where, field)
    try:
        return parse_amounts(value)
    except ValueError as wrong:
        raise _malformed(where, f"{field}: {wrong}") from wrong


def _malformed(where: str, what: str) -> Failed:
    return Failed(f"{where} {what}" if what.startswith(("is ", "cannot")) else f"{where}: {what}", Exit.USAGE)
