"""A workspace that is built once, and put back as it was for each test that needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.support.world import World

T = TypeVar("T")


@dataclass(frozen=True)
class Recording(Generic[T]):
    """Everything on the server of a world, its time, and what its builder returned."""

    result: T
    now_ms: int
    keys: tuple[tuple[str, int, bytes], ...]
    """Name, milliseconds to live (0: no end) and content as DUMP gives it."""

    @classmethod
    def of(cls, world: World, result: T) -> Recording[T]:
        """Record a world as it is now."""
        names = sorted(world.client.scan_iter("*", 1000))
        keys = tuple((name, max(world.client.pttl(name), 0), world.client.dump(name) or b"") for name in names)
        return cls(result, world.clock.now_ms(), keys)

    def restore(self, world: World) -> T:
        """Put everything onto the empty server of another world."""
        pipeline = world.client.pipeline(transaction=False)
        for name, ttl_ms, content in self.keys:
            pipeline.restore(name, ttl_ms, content)
        pipeline.execute()
        world.clock.advance((self.now_ms - world.clock.now_ms()) / 1000)
        return self.result
