"""What may be a name or a resource key: the only place where it is written, for Python and for the OpenAPI page alike.

The types below are matched by pydantic's own engine, whose `$` is the end of the text and nothing before it; the predicates use
`fullmatch`. So a trailing newline slips past neither, and no name can hold what separates the parts of a Redis key.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

DEFAULT_TYPE = "orchestrator"
"""The type of a component if none is given."""

KEY_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$"
IDEMPOTENCY_PATTERN = r"^[ -~]{1,255}$"
COMPONENT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}/[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
POLICY_PATTERN = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62}|([A-Za-z0-9][A-Za-z0-9_.-]{0,61})?\*)$"
DECLARED_POLICY_PATTERN = (
    r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62}/)?([A-Za-z0-9][A-Za-z0-9_.-]{0,62}|([A-Za-z0-9][A-Za-z0-9_.-]{0,61})?\*)$"
)
TASK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
TITLE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{1,100}$"

PATTERN_TEXTS: dict[str, str] = {
    KEY_PATTERN: "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter",
    NAME_PATTERN: "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit",
    LABEL_PATTERN: "must be 1 to 63 of A-Z a-z 0-9 _ . / - and begin with a letter or digit",
    IDEMPOTENCY_PATTERN: "must be 1 to 255 printable ASCII characters",
    COMPONENT_PATTERN: "must be type/name, each 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit",
    POLICY_PATTERN: "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit; a template ends with its only *",
    DECLARED_POLICY_PATTERN: (
        "must be name or type/name, each 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit; "
        "a template ends with its only *"
    ),
    TASK_PATTERN: "must be 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit",
    TITLE_PATTERN: "must be 1 to 100 characters, none of them invisible or a line break",
}
"""Each pattern in words for people."""

ResourceKey = Annotated[str, Field(strict=True, pattern=KEY_PATTERN)]
"""What is counted: `gpu`, `mcpu`, `licence.matlab`."""

Name = Annotated[str, Field(strict=True, pattern=NAME_PATTERN)]
"""What a workspace, pool, group, component or component type is called."""

PolicyName = Annotated[str, Field(strict=True, pattern=POLICY_PATTERN)]
"""A component, or the beginning of the names of components with a `*` after it: the pattern of a policy template."""

FullComponent = Annotated[str, Field(strict=True, pattern=COMPONENT_PATTERN)]
"""A component as `type/name`."""

LabelKey = Annotated[str, Field(strict=True, pattern=LABEL_PATTERN)]
"""What a label is called."""

Title = Annotated[str, Field(strict=True, pattern=TITLE_PATTERN)]
"""The name of a request: any visible text."""

IdempotencyKey = Annotated[str, Field(strict=True, pattern=IDEMPOTENCY_PATTERN)]
"""What a client repeats to say that it means the same submission."""


def is_name(text: str) -> bool:
    """Whether this is a name."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def is_policy_name(text: str) -> bool:
    """True if a policy may have this name: that of a component, or the pattern of a template."""
    return re.fullmatch(POLICY_PATTERN, text) is not None


def is_component_pattern(text: str) -> bool:
    """True if a token may list this: a name or `type/name`, or all that begin so if it ends with its only `*`."""
    return re.fullmatch(DECLARED_POLICY_PATTERN, text) is not None


def is_template(component: str) -> bool:
    """True if this is the pattern of a policy template."""
    return component.endswith("*")


def is_task_name(text: str) -> bool:
    """Whether a task may be known by this."""
    return re.fullmatch(TASK_PATTERN, text) is not None


def is_idempotency_key(text: str) -> bool:
    """Whether this is an idempotency key."""
    return re.fullmatch(IDEMPOTENCY_PATTERN, text) is not None


def short_component(component: str) -> str:
    """Return a component as it is typed: `team`, or `step_operator/team` if its type is not the default."""
    return component.removeprefix(f"{DEFAULT_TYPE}/")


def component_id(component_type: str, name: str) -> str:
    """How a component is written wherever one text must say both: `type/name`."""
    return f"{component_type}/{name}"
