"""Ids: names of their own kind, sorted by age, and never twice."""

from __future__ import annotations

import time

from app.domain.ids import request_id
from app.domain.names import is_name


def test_ids_are_names_and_never_twice() -> None:
    ids = [request_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert all(len(each) == 20 and is_name(each) for each in ids)


def test_a_later_id_sorts_later() -> None:
    first = request_id()
    until = time.time_ns() // 1_000_000 + 2
    while time.time_ns() // 1_000_000 < until:
        pass
    assert first < request_id()
