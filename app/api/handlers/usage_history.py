"""The use of pools over the last hours, as it is answered."""

from __future__ import annotations

from collections.abc import Mapping

from app.api.routing import Call
from app.api.schemas.requests import Answer, Time, time_of
from app.domain.usage_history import History

Units = Mapping[str, list[int | None]]
"""Key → a number for each time; null: the pool did not list the key then, or a hundred others used more."""


class HistoryAnswer(Answer):
    """What was used of a pool at several times, the newest last: one a minute for twelve hours, unless set otherwise."""

    times: list[Time]
    capacity: Units
    series: Mapping[str, Units]
    """What was used: by all under `pool`, then by each policy the pool has now, as `type/name`. Of more than a hundred
    those that used most."""

    @classmethod
    def of(cls, history: History) -> HistoryAnswer:
        """The answer for a history."""
        return cls(
            times=[time_of(at_ms) for at_ms in history.times_ms],
            capacity=_listed(history.capacity),
            series={name: _listed(units) for name, units in history.series.items()},
        )


def _listed(units: Mapping[str, tuple[int | None, ...]]) -> dict[str, list[int | None]]:
    return {key: list(numbers) for key, numbers in units.items()}


def of_pool(call: Call, pool: str) -> HistoryAnswer:
    """How much of a pool was used over the last hours, and by which policies."""
    return HistoryAnswer.of(call.services.history.of(call.workspace, pool))
