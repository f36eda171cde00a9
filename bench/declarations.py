"""The longest scripts in a pool with many policies, which only an administrator can create.

Some commands read all policies of a pool at one moment. The bench prints the time for which they delay other workspaces.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from redis import Redis

from app.bootstrap import make_services
from app.domain.declaration import PolicyDeclaration, export_pool
from app.domain.declaration_diff import DeclarationStep
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate, RequestSpec
from app.settings import Settings
from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis
from app.store.ledger import Ledger
from bench.adversary import log_scripts, longest_scripts

WORKSPACE = "declared"
NAMED = 6
PART = 1_000
"""The number of policies of one declaration."""


def run(counts: tuple[int, ...]) -> None:
    """Print a line for each number of policies."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder)) as server:
            client = connect(server.url, timeout_s=30)
            assert isinstance(client, Redis)
            log_scripts(client)
            _call_everything(client, count)
            longest, _ = longest_scripts(server.url)
        row = ", ".join(f"{name} {ms:.1f} ms" for name, ms in list(longest.items())[:NAMED])
        print(f"  {count:,} policies: {row}")


def _declare(ledger: Ledger, names: list[str]) -> None:
    before = export_pool(ledger.get_pool(WORKSPACE, "p"))
    policies = [PolicyDeclaration(component=name) for name in names]
    ledger.declare(WORKSPACE, [DeclarationStep(before, before.model_copy(update={"policies": [*before.policies, *policies]}))])


def _call_everything(client: Redis, count: int) -> None:
    """Declare the policies, then make each call that reads all of them."""
    services, ledger = make_services(client, Settings()), Ledger(client)
    pools = services.pools
    pools.create(WORKSPACE, PoolSpec(name="p", capacity={"gpu": count}))
    for first in range(0, count - 1, PART):
        _declare(ledger, [f"t{number}" for number in range(first, min(first + PART, count - 1))])
    holder = services.requests.submit(WORKSPACE, RequestSpec(component="t0", resources={"gpu": count}))
    for number in range(10):
        services.requests.submit(WORKSPACE, RequestSpec(component=f"t{number}", resources={"gpu": 1}))
    _declare(ledger, ["one-more"])
    pools.get(WORKSPACE, "p")
    pools.update(WORKSPACE, "p", PoolUpdate(capacity={"gpu": count + 1}))
    pools.set_group(WORKSPACE, "p", "g", GroupSpec())
    pools.set_policy(WORKSPACE, "p", "t1", PolicySpec(priority=5))
    services.requests.release(WORKSPACE, holder.id, holder.fence or 0)
    pools.delete_policy(WORKSPACE, "p", "one-more")
    pools.delete_group(WORKSPACE, "p", "g")
    services.usage_history.record(WORKSPACE)
    services.usage_history.get(WORKSPACE, "p")
    list(services.metrics.list_pool_metrics(WORKSPACE))
    services.periodic_jobs.reconcile_workspace(WORKSPACE)
    services.audit.run(WORKSPACE)
