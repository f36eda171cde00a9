"""The invariants of policy templates: the lists of their instances, the numbers, and the fields that they decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.properties.oracle import Model
from tests.properties.snapshot import Snapshot
from tests.properties.usage import PEAK

STATE = {"creation_number", "queue_length", "reserved_times", "status", "below_ms", "over_ms", "template"}
"""The fields of a policy that its template does not decide."""
DECIDED = {"limit", "reserved"}
"""The columns of a policy that its template decides."""


def template_faults(snapshot: Snapshot, model: Model) -> Iterator[str]:
    """Yield a fault for each template that lists other policies than those that name it, or whose instances differ from it."""
    counts: Counter[str] = Counter()
    checks: set[str] = set()
    for pool, place in model.pools.items():
        instances: dict[str, set[str]] = {}
        for name, account in place.accounts.items():
            if name.endswith("*"):
                counts[name[7:]] += 1
            if account.template:
                instances.setdefault(account.template, set()).add(name[7:])
                yield from _decided(snapshot, pool, name[7:], account.template)
        index = {parts[1]: set(times) for parts, times in snapshot.of("pool_instances") if parts[0] == pool}
        if index != instances:
            yield f"{pool} instances of templates: {index}, should be {instances}"
        if int(snapshot.get("pool", pool).get("instances", 0)) != sum(map(len, instances.values())):
            yield f"{pool} counts {snapshot.get('pool', pool).get('instances')} instances of templates: {instances}"
        checks |= {f"{pool} {template}" for template in instances}
    if snapshot.get("templates") != (expected := {pattern: str(count) for pattern, count in counts.items()}):
        yield f"templates: {snapshot.get('templates')}, should be {expected}"
    if int(snapshot.get("meta").get("templates", 0)) != counts.total():
        yield f"{snapshot.get('meta').get('templates')} templates, should be {counts}"
    if not checks <= set(snapshot.get("template_checks")):
        yield f"checks of templates: {snapshot.get('template_checks')}, should be of {checks}"


def _decided(snapshot: Snapshot, pool: str, component: str, template: str) -> Iterator[str]:
    """Yield policies that differ from their template after its changes have reached them."""
    if component in snapshot.get("pool_template_updates", pool, template):
        if f"template_updates {template}" not in snapshot.get("pool_unfinished", pool):
            yield f"{pool}: no work is noted for {template}"
        return
    rows = [snapshot.get("policy", pool, name) for name in (component, template)]
    own, of_template = (
        {
            name: value
            for name, value in row.items()
            if name not in STATE and not name.startswith(PEAK) and (":" not in name or name.partition(":")[0] in DECIDED)
        }
        for row in rows
    )
    if own != of_template:
        yield f"{pool} {component} is {own}, its template {of_template}"
