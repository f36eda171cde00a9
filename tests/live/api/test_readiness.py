"""The readiness of an API whose Redis is not ready."""

from __future__ import annotations

from redis import Redis

from tests.support.in_process_api import Site
from tests.support.servers import Servers


def test_it_is_not_ready_while_nothing_can_be_written(servers: Servers) -> None:
    site = Site(servers.client("redis"))
    assert isinstance(site.client, Redis)
    assert site.get("/readyz", root=True).status == 200
    site.client.config_set("maxmemory", 1)
    try:
        site.get("/readyz", root=True).refused(503, "redis_out_of_memory")
    finally:
        site.client.config_set("maxmemory", 0)
