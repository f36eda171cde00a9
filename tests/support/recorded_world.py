"""A workspace that is built once, and put back as it was for each test that needs it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from app.store.connection import RedisClient
from tests.support.world import World

T = TypeVar("T")
KeyDump: TypeAlias = tuple[str, int, bytes]
"""Name of a key, milliseconds to live (0: no end) and content as DUMP gives it."""


def dump_keys(client: RedisClient) -> tuple[KeyDump, ...]:
    """Return all keys of a server."""
    names = sorted(client.scan_iter("*", 1000))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.pttl(name)
        pipeline.dump(name)
    replies = pipeline.execute()
    return tuple((name, max(ttl_ms, 0), dump) for name, ttl_ms, dump in zip(names, replies[::2], replies[1::2], strict=True))


def restore_keys(client: RedisClient, keys: Iterable[KeyDump]) -> None:
    """Write keys to a server that has none of them."""
    pipeline = client.pipeline(transaction=False)
    for name, ttl_ms, dump in keys:
        pipeline.restore(name, ttl_ms, dump)
    pipeline.execute()


@dataclass(frozen=True)
class Recording(Generic[T]):
    """Everything on the server of a world, its time, and what its builder returned."""

    result: T
    now_ms: int
    keys: tuple[KeyDump, ...]

    @classmethod
    def of(cls, world: World, result: T) -> Recording[T]:
        """Record a world as it is now."""
        return cls(result, world.clock.now_ms(), dump_keys(world.client))

    def restore(self, world: World) -> T:
        """Put everything onto the empty server of another world."""
        restore_keys(world.client, self.keys)
        world.clock.advance((self.now_ms - world.clock.now_ms()) / 1000)
        return self.result
