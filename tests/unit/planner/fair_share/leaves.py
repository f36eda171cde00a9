"""The allocations of a leaf, and its fair share as decimals."""

from __future__ import annotations

from fractions import Fraction

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation
from app.planner.fair_share.water_filling import Division


def allocations(*amounts_in_order: Amounts, checkpointed: frozenset[int] = frozenset()) -> list[Allocation]:
    """Return allocations r0, r1, … in order of grant; those at `checkpointed` completed a checkpoint."""
    return [
        Allocation(
            id=f"r{place}",
            component="orchestrator/x",
            amounts=amounts,
            fence=place + 1,
            preemptible=True,
            preemption_class=5,
            checkpoint="auto",
            checkpoint_minutes=None,
            walltime_s=None,
            granted_ms=place,
            checkpointed_ms=1_000 if place in checkpointed else None,
        )
        for place, amounts in enumerate(amounts_in_order)
    ]


def fair_shares(division: Division, name: str) -> dict[str, float]:
    """Return an account's fair share per key, as a decimal."""
    shares = zip(division.keys, division.accounts[name].fair, strict=True)
    return {key: float(Fraction(share, division.scale)) for key, share in shares}
