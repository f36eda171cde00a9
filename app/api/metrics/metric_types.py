"""The classes of the rows of the table of metrics: one class for each source of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from app.domain.amounts import Amounts
from app.domain.metrics import PolicyMetrics, PoolMetrics, WorkspaceMetrics
from app.domain.tasks import OutboxStatus
from app.domain.tokens import Token

PREFIX = "poolkeeper_"
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Buckets(NamedTuple):
    """The value of a histogram: the count of each bucket, last that beyond all bounds, and the sum of the values."""

    counts: list[int]
    total: float


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table of metrics."""

    name: str
    """The name without the prefix."""
    kind: Kind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    """The upper bounds of the buckets of a histogram."""

    @property
    def full_name(self) -> str:
        """Return the name with the prefix."""
        return PREFIX + self.name


@dataclass(frozen=True, slots=True)
class ProcessMetric(Metric):
    """A metric that the API processes count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMetric(Metric):
    """A metric of a pool. With the label `key` the value is an amount for each key."""

    read: Callable[[PoolMetrics], float | Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMetric(Metric):
    """A metric of a policy; None is no row. With the label `key` the value is an amount for each key."""

    read: Callable[[PolicyMetrics], float | Amounts | None]
    only_named_keys: bool = False
    """True if a key without an amount has no row; else its row is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceMetric(Metric):
    """A metric that is read from the counters of a workspace: rows of label values, without the workspace, and a value."""

    read: Callable[[WorkspaceMetrics], Iterable[tuple[tuple[str, ...], float | Buckets]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMetric(Metric):
    """A metric of the task outbox of a workspace."""

    read: Callable[[OutboxStatus], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMetric(Metric):
    """A metric of a token that expires soon, from the token and the seconds until then."""

    read: Callable[[Token, float], float]
