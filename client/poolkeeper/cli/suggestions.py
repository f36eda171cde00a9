"""Similar names for a name that does not exist, and for a rejected request.

They are looked up after an error. If the lookup fails (no permission, a busy service), there is no suggestion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from poolkeeper.cli.options import client, path
from poolkeeper.formatting import component

TIMEOUT_S = 3.0
MAX_NAMES = 10


def add_names(error: Any, params: Mapping[str, Any]) -> None:
    """Add similar names to a NotFound."""
    name, names = _name_and_candidates(error, params)
    if name is not None:
        error.hints = _similar(name, {name: name for name in names})


def hints_of(request: Mapping[str, Any]) -> list[str]:
    """Return hints for a rejected request whose component has no policy, or whose key is in no pool."""
    reason = request.get("reason") or {}
    verdicts = reason.get("pools") or []
    try:
        if reason.get("code") == "no_policy" and not verdicts:
            return _components_like(str(request["component"]), str(request["component_type"]))
        if verdicts and all(verdict["code"] == "missing_key" for verdict in verdicts):
            return _keys_like({verdict["key"] for verdict in verdicts}, {verdict["pool"] for verdict in verdicts})
    except Exception:  # the rejection is reported, with or without hints
        return []
    return []


def _components_like(name: str, kind: str) -> list[str]:
    """Return a hint with similar components that have a policy; the same name with another type is the most similar."""
    policies = [policy for pool in _pools() for policy in pool.get("policies") or []]
    return _similar(name, {component(policy): str(policy["component"]) for policy in policies})


def _keys_like(asked: set[str], pools: set[str]) -> list[str]:
    """Return a hint for the first of these keys that none of these pools has; none if each is in one of them."""
    keys = sorted({key for pool in _pools() if pool["name"] in pools for key in pool["capacity"]})
    absent = sorted(asked.difference(keys))
    return _similar(absent[0], {key: key for key in keys}) if absent else []


def _pools() -> Sequence[Mapping[str, Any]]:
    pools: Sequence[Mapping[str, Any]] = client(timeout_s=TIMEOUT_S, tries=1).call("GET", "/declaration")["pools"]
    return pools


def _similar(name: str, names: Mapping[str, str]) -> list[str]:
    """Return a hint with the similar ones of `names` (as typed → the part that is compared)."""
    from difflib import get_close_matches

    matches = get_close_matches(name, set(names.values()), cutoff=0.5)
    if typed := sorted((word for word, name in names.items() if name in matches), key=lambda word: matches.index(names[word])):
        return [f"did you mean {' or '.join(typed)}?"]
    return [f"existing names: {', '.join(list(names)[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''}"] if names else []


def _name_and_candidates(error: Any, params: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    code, pool, component = error.code, params.get("pool"), params.get("component")
    if code == "no_such_pool" and pool:
        return pool, _names("name", "pools")
    if code == "no_such_policy" and pool and component:
        return _component_name(component), _names("component", "pools", pool, "policies")
    group = next((name for name in (params.get("group"), params.get("parent")) if name and name in error.detail), None)
    if code == "no_such_group" and pool and group:
        return group, _names("name", "pools", pool, "groups")
    return None, []


def _component_name(component: Any) -> str:
    return str(component[1] if isinstance(component, tuple) else component)


def _names(field: str, *parts: str) -> list[str]:
    """Return the existing names; none if they cannot be read now."""
    from poolkeeper.errors import PoolkeeperError

    try:
        return sorted({item[field] for item in client(timeout_s=TIMEOUT_S, tries=1).items(path(*parts))})
    except PoolkeeperError:
        return []
