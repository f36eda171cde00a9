"""The curves compared with the definitions, on trees whose levels can be searched for.

`TREES=5000 make test ARGS="tests/properties/fair_share"` tries this many trees of each kind.
"""

from __future__ import annotations

import os
from fractions import Fraction
from random import Random

import pytest

from app.planner.fair_share.water_filling import divide
from tests.properties.fair_share.definition import shares
from tests.properties.fair_share.random_trees import TreeGenerator

LONGER = int(os.environ.get("TREES", 0))
NEAR = 1e-6
"""A search ends so near."""


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@pytest.mark.parametrize(
    ("fine", "groups", "trees"),
    [
        pytest.param(6, 0, 250, id="policies that meet in few units"),
        pytest.param(6, 1, 120, id="groups that meet in few units"),
        pytest.param(10_000, 1, 90, id="groups"),
        pytest.param(1_000, 2, 8, id="groups in groups"),
    ],
)
def test_the_shares_are_as_defined(fine: int, groups: int, trees: int) -> None:
    for seed in range(LONGER or trees):
        grower = TreeGenerator(Random(seed), fine=fine, groups=groups)
        tree = grower.tree()
        division = divide(grower.capacity, tree)
        guarantees = {
            name: tuple(Fraction(share, division.scale) for share in account.guarantee)
            for name, account in division.accounts.items()
        }
        expected = shares(grower.capacity, tree, guarantees)
        fair_shares = {name: [share / division.scale for share in account.fair] for name, account in division.accounts.items()}
        assert fair_shares == {
            name: pytest.approx([float(share) for share in due], abs=NEAR) for name, due in expected.items()
        }, f"seed {seed}: {grower.capacity} {tree}"
