"""The types of validated fields (ranges, amounts, durations), and the two base models of all inputs of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.domain.amounts import MAX_KEYS
from app.domain.decimals import require_exact
from app.domain.names import LabelKey, Name, ResourceKey
from app.domain.queue_score import MAX_AMOUNT

TEN_YEARS_S = 10 * 365 * 24 * 3600
"""The longest duration in seconds. A time in milliseconds plus this duration is still an exact number."""

MAX_TEMPLATE_POLICIES = 100_000
MAX_LABELS = 32
MAX_LABEL_LENGTH = 255
MAX_NAMED_POOLS = 32
"""The most pools that a request names."""
MAX_WEIGHT = 10_000
MIN_EXIT_CODE, MAX_EXIT_CODE = -64, 255
"""The bounds of exit codes of work. A negative code is the number of the signal that ended it; Linux has 64 signals."""
MAX_THRESHOLD = 10

Units = Annotated[int, Field(ge=1, le=MAX_AMOUNT)]
Quantity = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
Seconds = Annotated[int, Field(ge=0, le=TEN_YEARS_S)]
Duration = Annotated[int, Field(ge=1, le=TEN_YEARS_S)]
TemplateMax = Annotated[int, Field(ge=1, le=MAX_TEMPLATE_POLICIES)]
WorkExitCode = Annotated[int, Field(ge=MIN_EXIT_CODE, le=MAX_EXIT_CODE)]
Weight = Annotated[int, Field(ge=1, le=MAX_WEIGHT)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), AfterValidator(require_exact)]
Threshold = Annotated[float, Field(ge=0, le=MAX_THRESHOLD, allow_inf_nan=False), AfterValidator(require_exact)]
RequestedUnits = Annotated[Mapping[ResourceKey, Units], Field(max_length=MAX_KEYS)]
Capacity = Annotated[Mapping[ResourceKey, Units], Field(min_length=1, max_length=MAX_KEYS)]
Quantities = Annotated[Mapping[ResourceKey, Quantity], Field(max_length=MAX_KEYS)]
Labels = Annotated[Mapping[LabelKey, Annotated[str, Field(max_length=MAX_LABEL_LENGTH)]], Field(max_length=MAX_LABELS)]
PoolNames = Annotated[list[Name], Field(min_length=1, max_length=MAX_NAMED_POOLS)]
Description = Annotated[str, Field(max_length=1000)]


class StrictModel(BaseModel):
    """A model without unknown fields and without conversion of values."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class SettingsModel(StrictModel):
    """Settings with their defaults. In a change, only the settings that were given count."""

    def explicit_values(self) -> dict[str, Any]:
        """Return the settings that were given, those with null included."""
        return self.model_dump(exclude_unset=True)
