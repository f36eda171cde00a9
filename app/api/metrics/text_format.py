"""The text that Prometheus reads, for numbers that are read at the moment it asks.

Pools and policies make many rows. A collector of prometheus_client takes 11 us for each (label names are matched with values,
values escaped, samples made and sorted), which for 2,000 policies is a quarter of a second; a row here takes half of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def labels(**values: str) -> str:
    """Labels as a row takes them."""
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in values.items())


class Family:
    """One metric: its name, its kind (`gauge`, `counter` or `histogram`), what it says, and its rows."""

    def __init__(self, name: str, kind: str, says: str) -> None:
        self.name, self._head = name, (f"# HELP {name} {says}", f"# TYPE {name} {kind}")
        self._rows: list[str] = []

    def add(self, of: str, value: float) -> None:
        """A row with these labels."""
        self._rows.append(f"{self.name}{{{of}}} {value}")

    def add_buckets(self, of: str, bounds: Iterable[float], counts: Sequence[int], total: float) -> None:
        """The rows of a histogram: how many were up to each bound and to none before it, last how many beyond; their sum."""
        so_far = 0
        for bound, count in zip((*map(float, bounds), "+Inf"), counts, strict=True):
            so_far += count
            self._rows.append(f'{self.name}_bucket{{{of},le="{bound}"}} {so_far}')
        self._rows.append(f"{self.name}_count{{{of}}} {so_far}")
        self._rows.append(f"{self.name}_sum{{{of}}} {total}")

    def lines(self) -> Iterator[str]:
        """Head and rows; nothing of a family that has no row."""
        if self._rows:
            yield from self._head
            yield from self._rows
