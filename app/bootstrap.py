"""The one place where concrete things are chosen: settings, a Redis and a clock become services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from app.domain.clock import Clock
from app.service.audit import Audit
from app.service.housekeeping import Housekeeping
from app.service.pools import Pools
from app.service.requests import Requests
from app.settings import Settings
from app.store.auditor import Auditor
from app.store.connection import check, connect
from app.store.embedded import EmbeddedRedis
from app.store.ledger import Ledger, Limits
from app.store.registry import Registry
from app.store.scripts import Client


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that can be asked of Poolkeeper in one process."""

    requests: Requests
    pools: Pools
    housekeeping: Housekeeping
    audit: Audit
    registry: Registry


def services(client: Client, settings: Settings, clock: Clock | None = None) -> Services:
    """The services on a Redis."""
    limits = Limits(
        chunk=settings.chunk,
        events_kept=settings.events_kept,
        retention_s=settings.retention_s,
        idempotency_ttl_s=settings.idempotency_ttl_s,
    )
    ledger, registry = Ledger(client, clock, limits), Registry(client)
    return Services(
        requests=Requests(ledger, registry),
        pools=Pools(ledger, registry),
        housekeeping=Housekeeping(ledger, registry),
        audit=Audit(ledger, Auditor(client, clock, settings.chunk)),
        registry=registry,
    )


@dataclass(frozen=True, slots=True)
class Running:
    """The services, the Redis they are on, and the server if it is our own."""

    services: Services
    url: str
    server: EmbeddedRedis | None

    @property
    def alive(self) -> bool:
        """False once our own server is gone; a Redis of others may come back."""
        return self.server is None or self.server.alive


@contextmanager
def running(settings: Settings) -> Iterator[Running]:
    """The services on the Redis that is set, or on an embedded one that lives as long as the context. It has answered."""
    with ExitStack() as stack:
        server = None
        if not settings.redis_url:
            server = stack.enter_context(EmbeddedRedis(settings.data_dir, appendfsync=settings.appendfsync))
        url = server.url if server else str(settings.redis_url)
        client = connect(url, settings.redis_timeout_s)
        check(client, url)
        stack.callback(client.close)
        yield Running(services(client, settings), url, server)
