"""The tree of a pool: the pool at the root, groups below it, policies as leaves; amounts in whole units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app.domain.amounts import Amounts

Mode: TypeAlias = Literal["fair_share", "fifo"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A policy. `demand` is running and queued amounts; a key that `guarantee` or `limit` does not name is not set."""

    name: str
    weight: int = 1
    usage: Amounts = field(default_factory=dict)
    demand: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """A group, or the pool. The children of a fifo branch are in order: the first is served first."""

    name: str
    weight: int = 1
    mode: Mode = "fair_share"
    children: tuple[Leaf | Branch, ...] = ()
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
