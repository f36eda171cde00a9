"""The rows of a pool and the words about it: title, owner and run time; the discipline; a page that does not exist."""

from __future__ import annotations

import re

import pytest

from app.domain.request_origin import short_id
from tests.unit.dashboard.page_client import Desk, words

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def row(desk: Desk, identifier: str) -> str:
    """Return a row of the page of the pool, as a person reads it."""
    page = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    (html,) = re.findall(rf'<tr id="[qr]-{identifier}">(.*?)</tr>', page, re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_what_runs_and_what_waits_tell_title_owner_and_run_time(desk: Desk) -> None:
    desk.pool(gpu=2)
    desk.policy("team")
    labels = {"user": "ana", "host": "gpu-01", "command": "python train.py"}
    runs, waits = desk.submit(gpu=2, name="resnet", labels=labels, lease_s=None)["id"], desk.submit(gpu=1, labels=labels)["id"]
    desk.clock.advance(95 * 60)
    assert row(desk, runs).startswith(f"{short_id(runs)} resnet ana@gpu-01 team 2 gpu 1 h 35 min since ")
    assert row(desk, waits).startswith(f"1 {short_id(waits)} python train.py ana@gpu-01 team 1 gpu ")


@pytest.mark.parametrize(
    ("discipline", "text"), [("reserved", "by shares"), ("classes", "by class"), ("fair_share", "fair share")]
)
def test_the_discipline_is_named_in_words(desk: Desk, discipline: str, text: str) -> None:
    desk.pool(gpu=1, settings={"discipline": discipline})
    assert f"gpus {text} gpu 0 / 1" in desk.visitor().text("/")
    assert f"Pools gpus {text} Resize…" in desk.visitor().text("/pools/gpus")


def test_a_limit_is_in_the_bar_of_its_policy_alone_and_use_over_it_is_told(desk: Desk) -> None:
    desk.pool(gpu=8)
    desk.policy("team", limit={"gpu": 4})
    desk.submit(gpu=3)
    desk.put("/pools/gpus/policies/team", {"limit": {"gpu": 1}})
    page = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    assert page.count("<title>limit 1</title>") == 1
    assert 'aria-label="gpu: 3 used, 1 borrowed, 2 over limit, limit 1"' in page
    assert 'class="part over" x="12.5%" y="3" width="25.0%"' in page


def test_a_page_that_does_not_exist_has_the_header_and_tells_a_program_in_json(desk: Desk) -> None:
    desk.pool(gpu=1)
    secret = desk.token("admin")
    for path, text in (("/pools/nowhere", "there is no pool nowhere"), ("/no/such/page", "there is no page /no/such/page")):
        answer = desk.visitor(secret).get(path, BROWSER)
        page = answer.get_data(as_text=True)
        assert answer.status_code == 404
        assert text in words(answer)
        assert '<header class="top">' in page
        assert '<a href="/">Pools</a>' in page
        assert answer.headers["Content-Security-Policy"]
    assert "Sign out" in words(desk.visitor(secret).get("/pools/nowhere", BROWSER))
    assert desk.visitor().get("/no/such/page").mimetype == "application/problem+json"
    assert desk.visitor().get("/api/v1/nothing", BROWSER).mimetype == "application/problem+json"
    assert desk.visitor().http.post("/no/such/page", headers=BROWSER).mimetype == "application/problem+json"
    assert desk.visitor().http.get("/api/v1/requests/batch", headers=BROWSER).mimetype == "application/problem+json"


def test_a_refusal_in_another_workspace_leads_back_into_it(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("admin", workspaces=["alpha", "beta"]))
    page = visitor.get("/pools/nowhere?workspace=beta", BROWSER).get_data(as_text=True)
    assert page.count('href="/?workspace=beta"') == 3
    assert "Workspace beta" in " ".join(re.sub(r"<[^>]*>", " ", page).split())
