"""Names that are near to one that is not there: of what was asked for, and of what a rejected request asked.

They are looked up when something was refused already, so whatever goes wrong with that (a token that may not, a service that is
busy) only means that there is nothing to add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poolkeeper.cli.options import client, path
from poolkeeper.formatting import component

PATIENCE_S = 3.0
MOST = 10


def add_names(missing: Any, params: Mapping[str, Any]) -> None:
    """Add to what was not found the names that look like it."""
    asked, known = _asked_and_known(missing, params)
    if asked is not None:
        missing.hints = _alike(asked, {name: name for name in known})


def hints_of(rejected: Mapping[str, Any]) -> list[str]:
    """What a rejected request may have meant by a component without policies, or by a key that no pool has."""
    reason = rejected.get("reason") or {}
    verdicts = reason.get("pools") or []
    try:
        if reason.get("code") == "no_policy":
            return _components_like(str(rejected["component"]), str(rejected["component_type"]))
        if verdicts and all(verdict["code"] == "missing_key" for verdict in verdicts):
            return _keys_like(verdicts[0]["key"], {verdict["pool"] for verdict in verdicts})
    except Exception:  # the rejection stands, whatever becomes of this
        return []
    return []


def _components_like(name: str, kind: str) -> list[str]:
    """Those with a policy, as they are typed; one of the same name and another type is as near as can be."""
    policies = [policy for pool in _pools() for policy in pool.get("policies") or []]
    return _alike(name, {component(policy): str(policy["component"]) for policy in policies})


def _keys_like(key: str, pools: set[str]) -> list[str]:
    keys = sorted({key for pool in _pools() if pool["name"] in pools for key in pool["capacity"]})
    return _alike(key, {key: key for key in keys})


def _pools() -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = client(timeout_s=PATIENCE_S, tries=1).call("GET", "/declaration")["pools"]
    return found


def _alike(asked: str, known: Mapping[str, str]) -> list[str]:
    """`known` is how each is typed → what of it is compared."""
    from difflib import get_close_matches

    near = get_close_matches(asked, set(known.values()), cutoff=0.5)
    if typed := sorted((word for word, name in known.items() if name in near), key=lambda word: near.index(known[word])):
        return [f"did you mean {' or '.join(typed)}?"]
    return [f"there are: {', '.join(list(known)[:MOST])}{' …' if len(known) > MOST else ''}"] if known else []


def _asked_and_known(missing: Any, params: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    code, pool, component = missing.code, params.get("pool"), params.get("component")
    if code == "no_such_pool" and pool:
        return pool, _names("name", "pools")
    if code == "no_such_policy" and pool and component:
        return _bare(component), _names("component", "pools", pool, "policies")
    group = next((name for name in (params.get("group"), params.get("parent")) if name and name in missing.detail), None)
    if code == "no_such_group" and pool and group:
        return group, _names("name", "pools", pool, "groups")
    return None, []


def _bare(component: Any) -> str:
    return str(component[1] if isinstance(component, tuple) else component)


def _names(field: str, *parts: str) -> list[str]:
    """The names there are; none if they cannot be had just now."""
    from poolkeeper.errors import PoolkeeperError

    try:
        return sorted({item[field] for item in client(timeout_s=PATIENCE_S, tries=1).items(path(*parts))})
    except PoolkeeperError:
        return []
