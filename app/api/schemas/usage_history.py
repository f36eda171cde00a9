"""The response model of a pool's usage history."""

from __future__ import annotations

from collections.abc import Mapping

from app.api.schemas.response_model import ResponseModel, Time, time_of
from app.domain.usage_history import UsageHistory

Units = Mapping[str, list[int | None]]
"""Key → a number for each time; null: the pool did not have the key then, or a hundred other policies used more."""


class UsageHistoryResponse(ResponseModel):
    """Samples of the use of a pool: one a minute for twelve hours, unless `history_interval_s` and `history_kept` differ."""

    times: list[Time]
    """The times of the samples, the newest last."""
    capacity: Units
    """Resource key → capacity at each time; null: the pool did not have the key."""
    series: Mapping[str, Units]
    """The units in use at each time: `pool` for all, then each present policy as `type/name`; if there are more than a hundred
    policies, only those that used most."""
    peaks: Mapping[str, Units]
    """The highest use since the sample before, for the same names. It includes use that began and ended between two samples."""

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
