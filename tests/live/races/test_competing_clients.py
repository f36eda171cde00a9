"""Many race for one thing: one of them gets it, all others are told the same, and nothing is counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.live.races.competing_clients import run_race
from tests.live.races.processes import CONTEXT, TIMES, run_together
from tests.live.races.test_random_clients import url_of
from tests.support.servers import Servers

RACERS = 8
ROUNDS = 25 * TIMES


@pytest.fixture(scope="module")
def url(servers: Servers) -> str:
    """Return the URL of a server for all races."""
    return url_of(servers.client("redis"))


def rounds_of(url: str, name: str) -> Iterator[tuple[list[str], list[str], int]]:
    """Yield the replies, the outcome of the requests, and the usage of each round."""
    barrier = CONTEXT.Barrier(RACERS)
    answers_by_process = run_together(run_race, [(url, number, name, ROUNDS, barrier) for number in range(RACERS)], 120 * TIMES)
    for each in zip(*answers_by_process, strict=True):
        statuses, used = each[0][1]
        yield [answer for answer, _ in each], statuses, used


def test_the_last_unit_is_granted_once(url: str) -> None:
    for answers, statuses, used in rounds_of(url, "the last unit"):
        assert Counter(answers) == Counter(statuses) == {"allocated": 1, "queued": RACERS - 1}
        assert used == 1


@pytest.mark.parametrize("name", ["the same key", "the same id"])
def test_what_is_sent_by_many_is_one_request(url: str, name: str) -> None:
    for answers, statuses, used in rounds_of(url, name):
        assert len(set(answers)) == 1
        assert (statuses, used) == (["allocated"], 1)


def test_a_key_means_the_body_that_came_first(url: str) -> None:
    for answers, statuses, used in rounds_of(url, "the same key for two bodies"):
        outcomes = {body: {answer[2:] for answer in answers if answer[0] == body} for body in "01"}
        assert sorted(len(outcome) for outcome in outcomes.values()) == [1, 1]
        assert len([outcome for outcome in outcomes.values() if outcome == {"idempotency_conflict"}]) == 1
        assert (statuses, used) == (["allocated"], 1)


def test_a_release_repeated_by_many_is_one_release(url: str) -> None:
    for answers, statuses, used in rounds_of(url, "the same release"):
        assert set(answers) == {"released"}
        assert (statuses, used) == (["released", "allocated"], 1)


def test_an_allocation_ends_one_way_and_is_handed_on_once(url: str) -> None:
    ends: Counter[str] = Counter()
    for answers, statuses, used in rounds_of(url, "release, drop, lapse, heartbeat"):
        assert (statuses[1], used) == ("allocated", 1)
        swept = answers.count("sweep 1")
        released = {answer for answer in answers if answer.startswith("release ")}
        assert statuses[0] == ("expired" if swept else "released")
        assert swept <= 1
        assert released <= ({"release stale_fence"} if swept else {"release released", "release stale_fence"})
        assert {answer for answer in answers if answer.startswith("drop ")} == {f"drop {statuses[0]}"}
        ends[statuses[0]] += 1
    assert ends.total() == ROUNDS


def test_a_waiter_is_cancelled_or_granted(url: str) -> None:
    for answers, statuses, used in rounds_of(url, "cancel or grant"):
        assert statuses[0] == "released"
        cancelled = "cancel cancelled" in answers
        assert set(answers) == {"release released", "cancel cancelled" if cancelled else "cancel not_queued"}
        assert (statuses[1], used) == (("cancelled", 0) if cancelled else ("allocated", 1))


def test_many_go_on_with_the_same_work(url: str) -> None:
    worked = 0
    for answers, statuses, used in rounds_of(url, "the same unfinished work"):
        assert Counter(statuses) == {"allocated": 4, "queued": 6, "rejected": 2}
        assert used == 4
        worked += sum(int(rounds) > 1 for rounds in answers) > 1
    assert worked, "never more than one took part"


def test_the_hold_is_given_once(url: str) -> None:
    for answers, statuses, used in rounds_of(url, "the one hold"):
        assert Counter(answers) == {"waiter": 1, "None": RACERS - 1}
        assert (statuses, used) == (["allocated", "queued"], 1)
