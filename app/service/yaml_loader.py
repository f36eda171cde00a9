"""A strict and safe YAML loader for files that people write: one document, as plain data.

Duplicate keys, aliases and tags are refused: aliases can grow a small file without bound, and tags can create any object. So a
document is first checked event by event, which costs no more than its length, and only then made into data.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import yaml

MAX_CHARACTERS = 2_000_000
MAX_DEPTH = 32
"""The most levels of nested lists and mappings."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InvalidYaml(ValueError):  # noqa: N818
    """A document that is refused; the message is one line."""


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]  # the C loader if it is built in: it is ten times as fast
    """A loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise InvalidYaml(f"line {key_node.start_mark.line + 1}: merge keys are not allowed")
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):  # other keys are refused below
                if key in keys:
                    raise InvalidYaml(f"line {key_node.start_mark.line + 1}: {key} is there twice")
                keys.add(key)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


def load(text: str) -> Any:
    """Return the data of the one document in a text. Raise InvalidYaml for any other text."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidYaml(f"must have at most {MAX_CHARACTERS} characters")
    try:
        _inspect(text)
        return yaml.load(text, _UniqueKeyLoader)
    except InvalidYaml:
        raise
    except yaml.MarkedYAMLError as error:
        raise InvalidYaml(_located(error)) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InvalidYaml(f"is no YAML: {' '.join(str(error).split())[:200]}") from error


def _inspect(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InvalidYaml(f"line {line}: anchors and aliases are not allowed")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag:
            raise InvalidYaml(f"line {line}: tags are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidYaml(f"line {line}: nested too deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _located(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}: " if mark else ""
    return f"{where}{error.problem or error.context or 'is no YAML'}"


def line_of(text: str, path: Sequence[str]) -> int:
    """Return the line of a field of a document, or of the innermost object on its path that exists."""
    node, line = yaml.compose(text, _Loader), 1
    for part in path:
        pair = _child(node, part)
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def _child(node: Any, part: str) -> tuple[Any, Any] | None:
    """Return the key and the value of a member of a mapping; for a list, the item as both."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
        return (node.value[int(part)],) * 2
    return None
