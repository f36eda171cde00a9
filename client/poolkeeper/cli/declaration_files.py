"""Declarations on paper: YAML read strictly, so that nothing a person wrote is lost silently, and written as a person would.

What is wrong in one is told by its file, the names of pool, group and policy, and the line: all of it, not only the first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolkeeper.cli.error_output import Failed
from poolkeeper.cli.exit_codes import Exit
from poolkeeper.cli.param_types import parse_amounts
from poolkeeper.formatting import component

if TYPE_CHECKING:
    import yaml

AMOUNTS = ("capacity", "reserved", "limit", "non_preemptible_usage_threshold")


KINDS = {"pools": "pool", "groups": "group", "policies": "policy"}
"""Lists of a declaration → what is in them."""
Fault = tuple[str, str]
"""A field, dotted as the API does it, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A declaration as it was read: where from, as which text, and what it says."""

    where: str
    text: str
    declared: dict[str, Any]

    def malformed(self, faults: Sequence[Fault]) -> Failed:
        """All that is wrong in it, a line each."""
        first, *others = [self._told(field, reason) for field, reason in faults]
        return Failed(first, Exit.USAGE, hints=others)

    def _told(self, field: str, reason: str) -> str:
        things, rest = _things(self.declared, field.split("."))
        number = _line_of(self.text, field.split("."))
        words = ": ".join([self.where, *things, *([rest] if rest else [])])
        return f"{words} {reason}" + (f" (line {number})" if number else "")


def read(name: str) -> Paper:
    """The declaration in a file, or on stdin; amounts may be written `gpu=8,mcpu=64000`."""
    where = "stdin" if name == "-" else name
    text = _text_of(name, where)
    found = _parsed(text, where)
    if found is None:
        raise _malformed(where, "is empty; `pools: []` says that there are none")
    if not isinstance(found, dict):
        raise _malformed(where, "is no declaration; it begins with `pools:`")
    faults: list[Fault] = []
    paper = Paper(where, text, _plain(found, "", faults))
    if faults:
        raise paper.malformed(faults)
    return paper


def _things(here: Any, parts: list[str]) -> tuple[list[str], str]:
    """What a field is in (`pool gpus`, `policy team`), and the field in there."""
    things: list[str] = []
    while len(parts) > 1 and parts[0] in KINDS and parts[1].isdigit():
        rows, number = here.get(parts[0]) if isinstance(here, dict) else None, int(parts[1])
        here = rows[number] if isinstance(rows, list) and number < len(rows) else None
        things.append(f"{KINDS[parts[0]]} {_name_of(here) or f'number {number + 1}'}")
        parts = parts[2:]
    return things, ".".join(parts)


def _name_of(thing: Any) -> str:
    if not isinstance(thing, dict):
        return ""
    name = thing.get("name") or (component(thing) if thing.get("component") else "")
    return name if isinstance(name, str) else ""


def _line_of(text: str, parts: list[str]) -> int | None:
    """The line of a field, or of what it should be in."""
    import yaml

    here, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    for part in parts:
        if isinstance(here, yaml.MappingNode):
            pair = next(((key, value) for key, value in here.value if key.value == part), None)
        elif isinstance(here, yaml.SequenceNode) and part.isdigit() and int(part) < len(here.value):
            pair = (here.value[int(part)],) * 2
        else:
            pair = None
        if pair is None:
            break
        line, here = pair[0].start_mark.line + 1, pair[1]
    return line


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


def _plain(value: Any, field: str, faults: list[Fault]) -> Any:
    """The value as JSON has it; what JSON does not know, such as a date, is a fault."""
    if isinstance(value, dict):
        return {str(key): _amounts_or(key, each, f"{field}.{key}".lstrip("."), faults) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, f"{field}.{number}", faults) for number, each in enumerate(value)]
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    return faults.append((field, f"is {value}, which is no value here; put it in quotes if it is a text"))


def _amounts_or(key: Any, value: Any, field: str, faults: list[Fault]) -> Any:
    if key not in AMOUNTS or not isinstance(value, str):
        return _plain(value, field, faults)
    try:
        return parse_amounts(value)
    except ValueError as wrong:
        key, colon, reason = str(wrong).partition(": ")
        return faults.append((f"{field}.{key}", reason) if colon else (field, f"cannot be read: {wrong}"))


def _malformed(where: str, what: str) -> Failed:
    return Failed(f"{where} {what}" if what.startswith(("is ", "cannot")) else f"{where}: {what}", Exit.USAGE)
