"""A row of the table of settings (`pool_settings.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from app.domain.models import Setting


@dataclass(frozen=True, slots=True)
class PoolSetting:
    """One setting: a row of the table."""

    name: str
    values: Any
    """The type of the values, with their range."""
    default: Setting
    """The value if a pool sets none; null if there is no value, or if `by_discipline` has one."""
    description: str
    """The public description for pools."""
    nullable: bool = False
    """True if null may be set."""
    by_discipline: Mapping[str, Setting] = field(default_factory=dict)
    """Discipline → the value if a pool sets none or null."""
    account_description: str = ""
    """The public description for groups and policies, which may override the setting; empty if only pools have it."""
    more_patient: Literal["", "lower", "higher"] = ""
    """The value that counts if a policy and the account above it differ; empty if the policy's counts."""
    example: Any = None

    @property
    def is_inheritable(self) -> bool:
        """True if groups and policies may override the setting."""
        return bool(self.account_description)

    @property
    def choices(self) -> tuple[Any, ...]:
        """Return the allowed words, if the values are words; else nothing."""
        return get_args(self.values) if getattr(self.values, "__origin__", None) is Literal else ()
