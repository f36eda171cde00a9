"""`docs/reference/celery.md` names every option of a task and every member of its allocation."""

from __future__ import annotations

import pytest
from poolkeeper.celery.allocation import TaskAllocation
from poolkeeper.celery.task_options import OPTIONS

from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "reference" / "celery.md").read_text("utf-8")
MEMBERS = {name for name in [*TaskAllocation.__annotations__, *vars(TaskAllocation)] if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(MEMBERS.union(OPTIONS)))
def test_the_page_has_every_option_and_every_member_of_an_allocation(name: str) -> None:
    assert f"`{name}`" in TEXT or f"`{name}(" in TEXT
