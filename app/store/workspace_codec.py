"""The codec of a workspace's settings and limits, and of a token's limits, in the form of the scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.domain.errors import LimitReached
from app.domain.specs import WorkspaceSettings
from app.domain.workspace_limits import NO_LIMIT, WORKSPACE_LIMITS, LimitedToken
from app.domain.workspaces import LimitUse, Workspace
from app.store import codec

COMPONENT_PREFIX = "component:"
"""The prefix of a setting with the limits of a component."""
NO_WAIT_LIMIT = "-"
"""The text of a component's limit that is null."""


def encode_workspace_settings(change: WorkspaceSettings) -> str:
    """Return the changed settings in the form of the script."""
    texts: dict[str, str] = {}
    for name, value in change.explicit_values().items():
        if name == "component_limits":
            texts |= {COMPONENT_PREFIX + component: _encode_component_limits(limits) for component, limits in value.items()}
        elif name in WORKSPACE_LIMITS:
            texts[name] = NO_LIMIT if value is None else str(value)
        else:
            texts[name] = str(value)
    return json.dumps(texts)


def _encode_component_limits(limits: Mapping[str, int | None] | None) -> str:
    numbers = [None if limits is None else limits.get(name) for name in ("max_waiting", "max_shapes")]
    if numbers == [None, None]:
        return ""
    return " ".join(NO_WAIT_LIMIT if number is None else str(number) for number in numbers)


def decode_workspace(fields: Mapping[str, Any]) -> Workspace:
    """Return a workspace from the reply of `get_workspace`."""
    texts = codec.to_mapping(fields["settings"])
    values: dict[str, Any] = {"unmanaged": texts["unmanaged"]} if "unmanaged" in texts else {}
    for name in WORKSPACE_LIMITS.keys() & texts.keys():
        values[name] = None if texts[name] == NO_LIMIT else int(texts[name])
    component_use = {component: (int(waiting), int(shapes)) for component, waiting, shapes in fields["components"]}
    limits = {component: _decode_component_limits(texts[COMPONENT_PREFIX + component]) for component in sorted(component_use)}
    settings = WorkspaceSettings(**values, component_limits=limits)  # type: ignore[arg-type]
    use = {name: LimitUse(int(text), getattr(settings, name)) for name, text in codec.to_mapping(fields["use"]).items()}
    return Workspace(
        settings,
        use,
        {
            component: {
                name: LimitUse(present, limits[component][name])
                for name, present in zip(("max_waiting", "max_shapes"), numbers, strict=True)
            }
            for component, numbers in sorted(component_use.items())
        },
    )


def _decode_component_limits(text: str) -> dict[str, int | None]:
    numbers = [None if word == NO_WAIT_LIMIT else int(word) for word in text.split(" ")]
    return dict(zip(("max_waiting", "max_shapes"), numbers, strict=True))


def encode_token(token: LimitedToken | None) -> dict[str, str | int] | None:
    """Return the subject of a token's limits in the form of the scripts; None if the token has none."""
    if token is None or token.limits.is_unlimited:
        return None
    numbers = {"max_waiting": token.limits.max_waiting, "max_shapes": token.limits.max_shapes}
    return {"name": f"token/{token.id}", **{name: number for name, number in numbers.items() if number is not None}}


def limit_refusal(subject: str, name: str, limit: str, present: str) -> LimitReached:
    """Return the refusal for a limit that a script found reached."""
    return LimitReached(subject, name, int(limit), int(present))
