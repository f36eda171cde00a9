"""The page of a request: what is left of its retries, how it names itself and others, and what the rules allow."""

from __future__ import annotations

import re

import pytest

from app.api.schemas.explain import PreemptionCandidateResponse, PreemptionResponse
from app.dashboard.mentioned_requests import link_ids
from app.dashboard.preemption_text import RULE_TEXTS, preemption_sentence
from app.domain.plan_steps import Trigger
from app.domain.request_origin import short_id
from tests.unit.dashboard.page_client import Desk


def preempt_times(desk: Desk, count: int, retries: int) -> str:
    """Return a request of `blue` that has left for one of `red` so many times."""
    desk.pool(gpu=1)
    desk.policy("red", reserved={"gpu": 1}, priority=5)
    desk.policy("blue")
    identifier = str(desk.submit("blue", gpu=1, retries=retries)["id"])
    for _ in range(count):
        waiter = desk.submit("red", gpu=1)["id"]
        allocation = desk.get(f"/requests/{identifier}").body
        desk.preempt(waiter, {"id": identifier, "fence": int(allocation["fence"])}, reason=Trigger.RECLAIM)
        desk.post(f"/requests/{identifier}/release", {"fence": allocation["fence"], "outcome": "vacated"})
        desk.delete(f"/requests/{waiter}")
    return identifier


@pytest.mark.parametrize(
    ("count", "retries", "text"),
    [
        (2, 3, "Preempted 2 times, 1 retry left"),
        (1, 3, "Preempted once, 2 retries left"),
        (2, 2, "Preempted 2 times, no retry left"),
        (1, 0, "Preempted once, no retry left"),
        (1, -1, "Preempted once, retries without bound"),
    ],
)
def test_what_is_left_of_the_retries(desk: Desk, count: int, retries: int, text: str) -> None:
    identifier = preempt_times(desk, count, retries)
    assert text in desk.visitor().text(f"/requests/{identifier}")


def test_a_request_is_named_by_title_and_owner_and_its_whole_id_is_there_once(desk: Desk) -> None:
    desk.pool(gpu=1)
    desk.policy("team")
    labels = {"user": "ana", "host": "gpu-01", "command": "python train.py", "pid": "4", "sweep": "7"}
    identifier = desk.submit(gpu=1, labels=labels)["id"]
    page = desk.visitor().text(f"/requests/{identifier}")
    assert f"gpus {short_id(identifier)} python train.py allocated" in page
    assert "Owner ana@gpu-01" in page
    assert "pid 4 sweep 7" in page
    assert "command python train.py" not in page, "it is the title"
    assert page.count(identifier) == 1
    named = desk.submit(gpu=1, name="resnet", labels=labels)["id"]
    page = desk.visitor().text(f"/requests/{named}")
    assert f"{short_id(named)} resnet queued" in page
    assert "command python train.py" in page


def test_other_requests_are_links_with_component_and_units(desk: Desk) -> None:
    desk.pool(gpu=2)
    desk.policy("red", reserved={"gpu": 2}, priority=5)
    desk.policy("blue")
    victim = desk.submit("blue", gpu=2)
    waiter = desk.submit("red", gpu=1)["id"]
    desk.preempt(waiter, {"id": victim["id"], "fence": int(victim["fence"])}, reason=Trigger.RECLAIM)
    visitor = desk.visitor()
    html = visitor.get(f"/requests/{victim['id']}").get_data(as_text=True)
    reference = f'<a class="id" href="/requests/{waiter}" title="{waiter}">{short_id(waiter)}</a>'
    assert f"preempted for request {reference}," in html
    assert f"{reference} red" in html
    page = visitor.text(f"/requests/{waiter}")
    assert f"Leaving for it: {short_id(victim['id'])} blue 2 gpu" in page


def test_ids_in_a_sentence_are_links_only_if_the_request_is_known() -> None:
    text = "Request abcdef012345 waits: request before123 is <b>before</b> it."
    assert link_ids(text, {}, str, "abcdef012345") == (
        'Request <span class="id" title="abcdef012345">012345</span> waits: request before123 is &lt;b&gt;before&lt;/b&gt; it.'
    )


def candidates(*rows: tuple[str | None, str | None], more: int = 0) -> PreemptionResponse:
    """Return a response with candidates of these rules and refusals."""
    listed = [
        PreemptionCandidateResponse(request=str(number), component="t", component_type="orchestrator", rule=rule, why_not=why)
        for number, (rule, why) in enumerate(rows)
    ]
    return PreemptionResponse(considered=True, code="x", reason="x", candidates=listed, more=more, leaving=())


REFUSED = (None, "reclaim: it is of the same policy; own: its rank is not lower")


@pytest.mark.parametrize(
    ("preemption", "text"),
    [
        (
            candidates(REFUSED, REFUSED),
            (
                "None of the 2 requests that run here may be preempted for it: "
                "not to get back what is reserved for its policy, not within its own policy."
            ),
        ),
        (
            candidates((None, "it is not preemptible")),
            "The one request that runs here may not be preempted for it: it is not preemptible.",
        ),
        (
            candidates((None, "its class is 10"), (None, "it has just begun")),
            "None of the 2 requests that run here may be preempted for it.",
        ),
        (candidates(("priority", None)), "The one request that runs here may be preempted for it: by a higher rank."),
        (
            candidates(("priority", None), ("own", None), REFUSED),
            "Of the 3 requests that run here, 2 may be preempted for it: by a higher rank or within its own policy.",
        ),
        (
            candidates(("priority", None), more=4),
            "Of the 5 requests that run here, at least 1 may be preempted for it: by a higher rank.",
        ),
    ],
)
def test_a_plain_sentence_sums_up_the_table_of_rules(preemption: PreemptionResponse, text: str) -> None:
    assert preemption_sentence(preemption) == text


def test_without_candidates_there_is_no_sentence() -> None:
    assert preemption_sentence(candidates()) == ""


def test_every_rule_has_its_words(desk: Desk) -> None:
    desk.pool(gpu=2)
    desk.policy("red")
    desk.policy("blue")
    desk.submit("blue", gpu=2)
    waiter = desk.submit("red", gpu=1)["id"]
    (pool,) = desk.get(f"/requests/{waiter}/explain").body["pools"]
    rules = set(re.findall(r"(\w+): ", pool["preemption"]["candidates"][0]["why_not"]))
    assert rules
    assert rules <= RULE_TEXTS.keys()
    page = desk.visitor().text(f"/requests/{waiter}")
    assert page.index("may not be preempted for it") < page.index("May be preempted"), "the sentence comes first"
