"""The replies of commands about policy templates: each is brought about once."""

from __future__ import annotations

from app.domain.declaration import export_pool
from app.domain.declaration_diff import DeclarationStep
from app.store import declaration_codec
from app.store.scripts import ScriptReply
from tests.support.reply_acts import NOWHERE, register_call, replies
from tests.support.world import World

TEMPLATE = "orchestrator/user-*"
PAGE = {"pool": "p", "template": TEMPLATE, "count": 10}


def _use_template(world: World) -> None:
    """Make a template, and let a component use it."""
    world.policy("user-*")
    world.submit("user-ana", gpu=1)


@replies("delete_idle_policies", "deleted")
def _(world: World) -> ScriptReply:
    world.policy("user-*")
    return world.call("delete_idle_policies", **PAGE)


@replies("delete_idle_policies", "in_use")
def _(world: World) -> ScriptReply:
    _use_template(world)
    return world.call("delete_idle_policies", **PAGE)


@replies("delete_idle_policies", "unfinished")
def _(world: World) -> ScriptReply:
    _use_template(world)
    for _ in range(2):
        world.submit("user-ana", gpu=2)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return world.call("delete_idle_policies", **PAGE)


AUDIT = {"kind": "counts", "template": "", "cursor": "0", "count": 10, "repair": False}
register_call("audit_templates", "audited", pool="p", **AUDIT)
register_call("audit_templates", "not_found", pool=NOWHERE, **AUDIT)
register_call("delete_idle_policies", "not_found", **PAGE | {"pool": NOWHERE})


@replies("delete_policy", "instances")
def _(world: World) -> ScriptReply:
    _use_template(world)
    return world.call("delete_policy", op="o", pool="p", component=TEMPLATE)


@replies("set_policy", "instances")
def _(world: World) -> ScriptReply:
    _use_template(world)
    numbers = {"priority": 0, "profile": "batch", "weight": 1, "reserved": "", "limit": "", "settings": "[]"}
    return world.call("set_policy", op="o", pool="p", component=TEMPLATE, group="g", **numbers)


@replies("declare", "instances")
def _(world: World) -> ScriptReply:
    _use_template(world)
    before = export_pool(world.get_pool())
    after = before.model_copy(update={"policies": [policy for policy in before.policies if policy.name != TEMPLATE]})
    return world.call("declare", op="o", changes=declaration_codec.encode_steps([DeclarationStep(before, after)]))
