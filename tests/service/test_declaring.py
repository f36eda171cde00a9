"""scratch"""
from typing import Any
import pytest
from app.domain.declared import Declaration
from app.service.declaring import Declaring
from app.store.registry import Registry
from tests.world import World

def test_x(world: World):
    d = Declaring(world.ledger, Registry(world.client))
    w = Declaration.model_validate({"pools": [{"name": "gpus", "capacity": {"gpu": 8}, "description": "für alle 𝄞",
        "groups": [{"name": "b", "parent": "a", "reserved": {"gpu": 2}}, {"name": "a", "reserved": {"gpu": 4}}],
        "policies": [{"component": "v", "reserved": {"gpu": 2}, "group": "b", "priority": 3, "limit": {"gpu": 0}| {"gpu": 5}}, {"component": "r"}]}]})
    p = d.apply("test", w)
    for c in p.changes: print(c)
    print(p.sentence)
    assert d.plan("test", w).changes == ()
    print(d.export("test").model_dump(exclude_defaults=True))
    assert d.apply("test", d.export("test")).sentence == "nothing to change"
    print(world.state())
    p = d.apply("test", Declaration(), prune=True)
    print(p, world.state())
