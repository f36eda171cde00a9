"""The patterns of names and resource keys. This is their only place, for Python and for the OpenAPI document alike.

The types below are matched by pydantic's own engine, whose `$` matches only the end of the text; the predicates use
`fullmatch`. So no trailing newline is accepted, and no name can contain a separator of the parts of a Redis key.
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
"""Pattern → its text for people."""

ResourceKey = Annotated[str, Field(strict=True, pattern=KEY_PATTERN)]
"""A counted resource: `gpu`, `mcpu`, `licence.matlab`."""

Name = Annotated[str, Field(strict=True, pattern=NAME_PATTERN)]
"""The name of a workspace, pool, group, component or component type."""

PolicyName = Annotated[str, Field(strict=True, pattern=POLICY_PATTERN)]
"""A component name, or the beginning of component names with a `*` after it: the pattern of a policy template."""

FullComponent = Annotated[str, Field(strict=True, pattern=COMPONENT_PATTERN)]
"""A component as `type/name`."""

LabelKey = Annotated[str, Field(strict=True, pattern=LABEL_PATTERN)]
"""The key of a label."""

Title = Annotated[str, Field(strict=True, pattern=TITLE_PATTERN)]
"""The name of a request: any visible text."""

IdempotencyKey = Annotated[str, Field(strict=True, pattern=IDEMPOTENCY_PATTERN)]
"""A key that a client repeats to mark the same submission."""


def is_name(text: str) -> bool:
    """True if the text is a name."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def is_policy_name(text: str) -> bool:
    """True if a policy may have this name: a component, or the pattern of a template."""
    return re.fullmatch(POLICY_PATTERN, text) is not None


def is_component_pattern(text: str) -> bool:
    """True if a token may list the text: a name, `type/name`, or a beginning that ends with its only `*`."""
    return re.fullmatch(DECLARED_POLICY_PATTERN, text) is not None


def is_template(component: str) -> bool:
    """True if the component is the pattern of a policy template."""
    return component.endswith("*")


def is_task_name(text: str) -> bool:
    """True if the text is a valid task name."""
    return re.fullmatch(TASK_PATTERN, text) is not None


def is_idempotency_key(text: str) -> bool:
    """True if the text is a valid idempotency key."""
    return re.fullmatch(IDEMPOTENCY_PATTERN, text) is not None


def short_component(component: str) -> str:
    """Return the short form of a component: `team`, or `step_operator/team` if its type is not the default."""
    return component.removeprefix(f"{DEFAULT_TYPE}/")


def component_id(component_type: str, name: str) -> str:
    """Return a component as `type/name`."""
    return f"{component_type}/{name}"


def account_name(account: str, pool: str = "the pool") -> str:
    """Return an account in words: `group science`, `policy training/vision`, or the words for the pool itself."""
    return pool if account == "pool" else account.replace(":", " ", 1)
