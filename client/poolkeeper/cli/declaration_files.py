"""Declarations as YAML files: read strictly, so that no field is lost silently, and written for people.

Each error names its file, pool, group or policy, and its line. All errors are reported, not only the first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolkeeper.cli.error_output import CommandError
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.param_types import NONE, parse_amounts, parse_duration
from poolkeeper.formatting import component

if TYPE_CHECKING:
    import yaml

AMOUNTS = ("capacity", "reserved", "limit", "non_preemptible_usage_threshold")


LIST_KINDS = {"pools": "pool", "groups": "group", "policies": "policy"}
"""Lists of a declaration → the name of one item."""
FieldError = tuple[str, str]
"""The path of a field with dots, as the API writes it, and its error."""


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    """A declaration file: its name, its text, and its declaration."""

    source: str
    text: str
    declaration: dict[str, Any]

    def locate(self, sentence: str, field: str) -> str:
        """Return a sentence of the service with the file and the line of a field."""
        number = _line_of(self.text, field.split("."))
        return f"{self.source}: {sentence}" + (f" (line {number})" if number else "")

    def error(self, field_errors: Sequence[FieldError]) -> CommandError:
        """Return the error that lists all field errors, a line each."""
        first, *more_lines = [self._describe(field, reason) for field, reason in field_errors]
        return CommandError(first, ExitCode.USAGE, hints=more_lines)

    def _describe(self, field: str, reason: str) -> str:
        things, rest = _split_path(self.declaration, field.split("."))
        number = _line_of(self.text, field.split("."))
        words = ": ".join([self.source, *things, *([rest] if rest else [])])
        return f"{words} {reason}" + (f" (line {number})" if number else "")


def read(name: str) -> DeclarationFile:
    """Read the declaration in a file, or on stdin; amounts may be written `gpu=8,mcpu=64000`."""
    source = "stdin" if name == "-" else name
    text = _read_text(name, source)
    document = _parse(text, source)
    if document is None:
        raise _usage_error(source, "is empty; `pools: []` says that there are none")
    if not isinstance(document, dict) or (document and "pools" not in document):
        raise _usage_error(source, f"line 1: expected `pools:` with a list of pools, not {_kind(document)}")
    field_errors: list[FieldError] = []
    if isinstance(document.get("pools"), dict):
        first_name = next(iter(document["pools"]), "gpus")
        field_errors.append(("pools", f"must be a list, in which each pool has a line such as `- name: {first_name}`"))
    file = DeclarationFile(source, text, _to_json(document, "", field_errors))
    if field_errors:
        raise file.error(field_errors)
    return file


def _split_path(document: Any, parts: list[str]) -> tuple[list[str], str]:
    """Return the objects around a field (`pool gpus`, `policy team`), and the path of the field inside the last object."""
    path: list[str] = []
    while len(parts) > 1 and parts[0] in LIST_KINDS and parts[1].isdigit():
        rows, number = document.get(parts[0]) if isinstance(document, dict) else None, int(parts[1])
        document = rows[number] if isinstance(rows, list) and number < len(rows) else None
        path.append(f"{LIST_KINDS[parts[0]]} {_name_of(document) or f'number {number + 1}'}")
        parts = parts[2:]
    return path, ".".join(parts)


def _name_of(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    name = item.get("name") or (component(item) if item.get("component") else "")
    return name if isinstance(name, str) else ""


def _line_of(text: str, parts: list[str]) -> int | None:
    """Return the line of a field, or of the object that lacks it."""
    import yaml

    node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    for part in parts:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            pair = (node.value[int(part)],) * 2
        else:
            pair = None
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def to_yaml(declaration: Mapping[str, Any]) -> str:
    """Return a declaration as YAML: amounts on one line, an empty line between pools."""
    import yaml

    class DeclarationDumper(yaml.SafeDumper):
        """A dumper that indents lists and writes amounts in braces."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def amounts(dumper: yaml.SafeDumper, value: _InlineMapping) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)

    DeclarationDumper.add_representer(_InlineMapping, amounts)
    text = yaml.dump(
        _with_inline_amounts(declaration), Dumper=DeclarationDumper, sort_keys=False, allow_unicode=True, width=120
    )
    return re.sub(r"(?<!^pools:)\n(?=  - name:)", "\n\n", text, flags=re.MULTILINE)


class _InlineMapping(dict[str, Any]):
    """A mapping to be written on one line."""


def _with_inline_amounts(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_inline_amounts(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _InlineMapping(each) if key in AMOUNTS and each else _with_inline_amounts(each) for key, each in value.items()}


def _read_text(name: str, source: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read()
        with open(name, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise _usage_error(source, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _usage_error(source, "is not UTF-8 text") from error


def _parse(text: str, source: str) -> Any:
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """A loader that refuses two equal keys of a mapping; plain YAML takes the last one."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise yaml.MarkedYAMLError(problem=f"{', '.join(sorted(twice))} is given twice", problem_mark=node.start_mark)
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep=True))

    StrictLoader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as error:
        raise _usage_error(source, _describe_yaml_error(error)) from error


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    """Return the error of YAML, which takes five lines, as one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    text = str(problem or error).splitlines()[0]
    if text.startswith("expected <block end>"):
        text = f"its indentation does not match the lines above: {text}"
    return (f"line {mark.line + 1}: " if mark else "is not YAML: ") + text


def _kind(document: Any) -> str:
    """Return the kind of the top level of a file in words."""
    if isinstance(document, dict):
        return ", ".join(f"`{name}`" for name in list(document)[:3])
    return "a list" if isinstance(document, list) else "a text" if isinstance(document, str) else "a number"


def _to_json(value: Any, field: str, field_errors: list[FieldError]) -> Any:
    """Return the value for JSON. A value that JSON lacks, such as a date, is a field error."""
    if isinstance(value, dict):
        return {str(key): _read_value(key, each, f"{field}.{key}".lstrip("."), field_errors) for key, each in value.items()}
    if isinstance(value, list):
        return [_to_json(each, f"{field}.{number}", field_errors) for number, each in enumerate(value)]
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    return field_errors.append((field, f"is {value}, which no field takes; a text needs quotes"))


def _read_value(key: Any, value: Any, field: str, field_errors: list[FieldError]) -> Any:
    """Return the value for the API: amounts, durations and `none` may be written as on the command line."""
    is_setting = field.split(".")[-2:-1] == ["settings"]
    if is_setting and value == NONE:
        return {} if key in AMOUNTS else None
    if is_setting and isinstance(value, str) and str(key).endswith("_s"):
        return _seconds(value)
    if key not in AMOUNTS or not isinstance(value, str):
        return _to_json(value, field, field_errors)
    try:
        return parse_amounts(value)
    except ValueError as error:
        key, colon, reason = str(error).partition(": ")
        return field_errors.append((f"{field}.{key}", reason) if colon else (field, f"cannot be read: {error}"))


def _seconds(text: str) -> int | str:
    """Return a duration in seconds. A text that is no duration is returned as it is; the service refuses it."""
    try:
        return parse_duration(text)
    except ValueError:
        return text


def _usage_error(source: str, problem: str) -> CommandError:
    return CommandError(
        f"{source} {problem}" if problem.startswith(("is ", "cannot")) else f"{source}: {problem}", ExitCode.USAGE
    )
