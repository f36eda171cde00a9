"""The response model of a pool's usage history."""

from __future__ import annotations

from collections.abc import Mapping

from app.api.schemas.response_model import ResponseModel, Time, time_of
from app.domain.usage_history import UsageHistory

Units = Mapping[str, list[int | None]]
"""Key → a number for each time; null: the pool did not list the key then, or a hundred others used more."""


class UsageHistoryResponse(ResponseModel):
    """What was used of a pool at several times, the newest last: one a minute for twelve hours, unless set otherwise."""

    times: list[Time]
    capacity: Units
    series: Mapping[str, Units]
    """What was used: by all under `pool`, then by each policy the pool has now, as `type/name`. Of more than a hundred
    those that used most."""
    peaks: Mapping[str, Units]
    """The highest use since the time before, of the same: what came and went between two times is in it."""

    @classmethod
    def of(cls, history: UsageHistory) -> UsageHistoryResponse:
        """Return the response for a history."""
        return cls(
            times=[time_of(at_ms) for at_ms in history.times_ms],
            capacity=_as_lists(history.capacity),
            series={name: _as_lists(series) for name, series in history.series.items()},
            peaks={name: _as_lists(series) for name, series in history.peaks.items()},
        )


def _as_lists(series: Mapping[str, tuple[int | None, ...]]) -> dict[str, list[int | None]]:
    return {key: list(numbers) for key, numbers in series.items()}
