"""The acts that lead to the replies of limits, by command and tag; each act gets a workspace with pool `p`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from app.domain.declaration import PoolDeclaration
from app.domain.declaration_diff import DeclarationStep
from app.domain.specs import RequestSpec, WorkspaceSettings
from app.store import codec, declaration_codec
from app.store.scripts import ScriptReply
from tests.support.world import World

Act = Callable[[World], ScriptReply]

_PAGE: dict[str, Any] = {"cursor": "0", "count": 10, "repair": False}


def _call(command: str, **args: Any) -> Act:
    """Return an act that needs nothing but the call."""
    return lambda world: world.call(command, **args)


def _limited(setting: str, command: str, **args: Any) -> Act:
    """Return an act that calls in a workspace in which the limit of this setting is 0."""

    def act(world: World) -> ScriptReply:
        world.ledger.update_workspace(world.workspace, WorkspaceSettings.model_validate({setting: 0}))
        return world.call(command, **args)

    return act


_SPEC = json.dumps([*codec.encode_request("x", RequestSpec(component="t", resources={"gpu": 1}), None)["fields"], "task", "a"])
_TASK = {"task": "a", "name": "x", "id": "one", "spec": _SPEC, "message": "m", "most": 3, "due_ms": None, "remember_s": 60}
_CALL = {"key": "", "digest": "d", "replaced": "", "fence": "", "limits": ""}
_NUMBERS = {"op": "o", "reserved": "", "limit": "", "weight": 1, "settings": "[]"}
_POLICY = {"pool": "p", "component": "x/y", "priority": 1, "profile": "batch", "group": "", **_NUMBERS}
_POOL = {"op": "o", "name": "q", "description": "", "capacity": "gpu=1", "settings": "[]"}
_NEW_POOL = declaration_codec.encode_steps([DeclarationStep(None, PoolDeclaration(name="q", capacity={"gpu": 1}))])

ACTS: dict[tuple[str, str], Act] = {
    ("audit_waiting", "audited"): _call("audit_waiting", kind="waiting", **_PAGE),
    ("audit_subject", "audited"): _call("audit_subject", kind="waiting", subject="token/a", **_PAGE),
    ("audit_shapes", "audited"): _call("audit_shapes", **_PAGE),
    ("audit_bodies", "audited"): _call("audit_bodies", bytes=0, saved=0, deleted=0, repair=False),
    ("sum_bodies", "read"): _call("sum_bodies", kind="requests", cursor="-1", count=10),
    ("list_subjects", "found"): _call("list_subjects"),
    ("update_workspace", "too_many"): _call(
        "update_workspace", settings=json.dumps({f"component:x/c{number}": "1 -" for number in range(1001)})
    ),
    ("charge", "charged"): _call("charge", op="o", token="t", per_s=1, count=3),
    ("park_task", "limited"): _limited("max_running", "park_task", **_TASK, **_CALL),
    ("set_policy", "limited"): _limited("max_policies", "set_policy", **_POLICY),
    ("create_pool", "limited"): _limited("max_pools", "create_pool", **_POOL),
    ("declare", "limited"): _limited("max_pools", "declare", op="o", changes=_NEW_POOL),
}
