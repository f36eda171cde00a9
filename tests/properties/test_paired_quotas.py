"""The rules of quotas in Lua, for one change, and in Python, for a whole declaration: the same refusals over random changes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from app.domain.declaration import Declaration
from app.domain.errors import Refusal
from app.domain.quota_validation import validate_quotas
from tests.support.servers import Servers
from tests.support.world import World

CAPACITY = {"gpu": 6, "lic": 3}
SETTINGS = {"template_max": 2}
GROUPS, COMPONENTS = ("g", "h", "i"), ("a", "b", "c", "a*", "*")
SEQUENCES, CHANGES = 40, 30

Accounts = dict[str, dict[str, Any]]


def refusal_of_declaration(groups: Accounts, policies: Accounts) -> str:
    """Return the code of the refusal of a pool with these accounts; empty if it is valid."""
    pool = {
        "name": "p",
        "capacity": CAPACITY,
        "settings": SETTINGS,
        "groups": [{"name": name, **fields} for name, fields in groups.items()],
        "policies": [{"component": component, **fields} for component, fields in policies.items()],
    }
    try:
        validate_quotas(Declaration.model_validate({"pools": [pool]}))
    except Refusal as refusal:
        return refusal.code
    return ""


def refusal_of_change(world: World, kind: str, name: str, fields: dict[str, Any]) -> str:
    """Set a group or policy in the ledger. Return the code of the refusal; empty if it was set."""
    try:
        (world.group if kind == "group" else world.policy)(name, **fields)
    except Refusal as refusal:
        return refusal.code
    return ""


def random_change(random: Random, groups: Accounts) -> tuple[str, str, dict[str, Any]]:
    """Return the kind, the name and the fields of an account; its amounts are of one key."""
    kind, key = random.choice(("group", "policy")), random.choice(("gpu", "gpu", "gpu", "lic", "tpu"))
    name = random.choice(GROUPS if kind == "group" else COMPONENTS)
    parents = [None, *(group for group in groups if kind == "policy" or group != name)]
    fields: dict[str, Any] = {"parent" if kind == "group" else "group": random.choice(parents)}
    if random.random() < 0.8:
        fields["reserved"] = {key: random.randint(0, 5)}
    if random.random() < 0.4:
        fields["limit"] = {key: random.randint(0, 8)}
    if random.random() < 0.1:
        fields["settings"] = {"non_preemptible_usage_threshold": {key: 1}}
    elif name.endswith("*") and random.random() < 0.5:
        fields["settings"] = {"template_max": random.randint(1, 3)}
    return kind, name, fields


def test_a_change_is_refused_as_the_declaration_with_it_is(servers: Servers) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEQUENCES):
        world, random = World(servers.client("fake")), Random(seed)
        world.pool("p", SETTINGS, **CAPACITY)
        groups: Accounts = {}
        policies: Accounts = {}
        for _ in range(CHANGES):
            kind, name, fields = random_change(random, groups)
            changed_groups = groups | ({name: fields} if kind == "group" else {})
            changed_policies = policies | ({name: fields} if kind == "policy" else {})
            refusal = refusal_of_change(world, kind, name, fields)
            # a declaration finds too little for the children where their sum is, a change where it is made
            expected = "overpromised" if refusal == "reserved_below_children" else refusal
            assert refusal_of_declaration(changed_groups, changed_policies) == expected, f"{seed}: {kind} {name} {fields}"
            if not refusal:
                groups, policies = changed_groups, changed_policies
            counts[refusal] += 1
    codes = {
        "",
        "unknown_key",
        "reserved_beyond_limit",
        "limit_beyond_capacity",
        "reserved_below_children",
        "overpromised",
        "circle",
    }
    assert codes <= counts.keys(), counts
