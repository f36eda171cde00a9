"""The text format of Prometheus, for metrics that are read at each scrape.

Pools and policies make many rows. A collector of prometheus_client takes 11 us for each row: it matches label names with
values, escapes the values, and makes and sorts samples. For 2,000 policies that is a quarter of a second. A row here takes
half a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def labels(**values: str) -> str:
    """Return the labels of a row."""
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in values.items())


class MetricFamily:
    """One metric with its head and its rows."""

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name, self._head = name, (f"# HELP {name} {help_text}", f"# TYPE {name} {kind}")
        self._rows: list[str] = []

    def add(self, row_labels: str, value: float) -> None:
        """Add a row with these labels."""
        self._rows.append(f"{self.name}{{{row_labels}}} {value}")

    def add_buckets(self, row_labels: str, bounds: Iterable[float], counts: Sequence[int], total: float) -> None:
        """Add the rows of a histogram. `counts` has the count of each bucket, last that beyond all bounds."""
        so_far = 0
        for bound, count in zip((*map(float, bounds), "+Inf"), counts, strict=True):
            so_far += count
            self._rows.append(f'{self.name}_bucket{{{row_labels},le="{bound}"}} {so_far}')
        self._rows.append(f"{self.name}_count{{{row_labels}}} {so_far}")
        self._rows.append(f"{self.name}_sum{{{row_labels}}} {total}")

    def lines(self) -> Iterator[str]:
        """Yield the head and the rows; nothing if there are no rows."""
        if self._rows:
            yield from self._head
            yield from self._rows
