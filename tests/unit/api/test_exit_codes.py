"""The outcome and the exit code of released work, in the request, its story and its event."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process_api import Site

JSON = {"Accept": "application/json"}


def _release(site: Site, **end: Any) -> Any:
    site.pool()
    site.policy()
    allocation = site.submit()
    return site.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"], **end})


@pytest.mark.parametrize(
    ("end", "outcome", "code"),
    [
        ({"outcome": "failed", "exit_code": 3}, "failed", 3),
        ({"exit_code": 0}, "succeeded", 0),
        ({"outcome": "failed", "exit_code": -9}, "failed", -9),
        ({"outcome": "failed"}, "failed", None),
    ],
)
def test_an_exit_code_is_shown_wherever_the_request_is(
    everywhere: Site, end: dict[str, Any], outcome: str, code: int | None
) -> None:
    released = _release(everywhere, **end).body
    assert (released["outcome"], released["exit_code"]) == (outcome, code)
    again = everywhere.post(f"/requests/{released['id']}/release", {"fence": released["fence"], "exit_code": 9})
    assert again.body == released, "a repeated release changes nothing"
    for path in (f"/requests/{released['id']}/events", "/events"):
        rows = [(row["event"], row["outcome"], row["exit_code"]) for row in everywhere.get(path, headers=JSON).items]
        assert rows == [("submitted", None, None), ("allocated", None, None), ("released", outcome, code)]


@pytest.mark.parametrize("code", [256, -65, 1.5, "0", True])
def test_an_exit_code_is_a_small_whole_number(site: Site, code: Any) -> None:
    assert set(_release(site, exit_code=code).malformed()) == {"exit_code"}


@pytest.mark.parametrize("outcome", ["vacated", "lost"])
def test_work_that_is_not_at_its_end_has_no_exit_code(site: Site, outcome: str) -> None:
    assert _release(site, outcome=outcome, exit_code=1).malformed() == {"exit_code": "goes with succeeded and failed"}
