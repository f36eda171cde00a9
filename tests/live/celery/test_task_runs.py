"""Tasks from their call to their result, on a real broker, a real service and workers with processes and with threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from poolkeeper.celery import TaskNotGranted
from poolkeeper.celery.publish_hook import publishing_directly
from redis import Redis

from app.store.child_process import ChildProcess
from tests.live.celery.conftest import Site, state
from tests.live.celery.project import (
    add,
    app,
    asking,
    autoretries,
    declines,
    fails,
    note_error,
    patient,
    read,
    replaced,
    replaced_by_many,
    retries,
    routed,
    total,
    whole,
)
from tests.support.backends import wait_until

IN_S = 25

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module", params=["prefork", "threads"], autouse=True)
def worker(request: pytest.FixtureRequest, site: Site) -> Iterator[ChildProcess]:
    """Yield a worker of each pool type in turn."""
    with site.worker("-P", request.param, "-c", "4") as child:
        yield child


def test_it_is_parked_until_it_is_granted_and_then_runs(site: Site) -> None:
    with site.full():
        result = add.delay(2, 3)
        assert state(result) == "PARKED"
        assert site.request(result)["status"] == "queued"
    assert result.get(timeout=IN_S) == 5
    assert (state(result), len(site.notes(result, "ran"))) == ("SUCCESS", 1)


def test_while_it_runs_it_is_started_and_holds_what_it_asked_for(site: Site) -> None:
    result = patient.apply_async(resources={"gpu": 3})
    site.wait_for_state(result, "STARTED")
    assert site.used() == 3
    assert site.request(result)["started_at"]
    site.go(result)
    assert result.get(timeout=IN_S) == "done"


def test_a_run_knows_what_it_holds(site: Site) -> None:
    pool, resources, request, fence, directive, lost, priority = whole.apply_async(priority=6, resources={"gpu": 2}).get(
        timeout=IN_S
    )
    assert (pool, resources["gpu"], directive, lost, priority) == ("gpus", 2, "continue", False, 6)
    assert site.client.request(request).fence == fence
    wait_until(lambda: site.client.request(request).outcome == "succeeded", "its units are given back")


def test_by_name_by_signature_and_by_route(site: Site) -> None:
    sent = app.send_task("add", (1, 1))
    signed = asking(add.s(2), {"gpu": 2}).set(queue="special").apply_async((3,))
    by_topic = routed.delay()
    assert (sent.get(timeout=IN_S), signed.get(timeout=IN_S)) == (2, 5)
    assert by_topic.get(timeout=IN_S) == ["metrics", "metrics.gpu"]
    assert site.notes(signed, "ran")[0].endswith(" 2")


@pytest.mark.parametrize(("serializer", "compression"), [("pickle", "gzip"), ("yaml", None), ("json", "bzip2")])
def test_serializers_and_compression(serializer: str, compression: str | None) -> None:
    result = add.apply_async((20, 1), serializer=serializer, compression=compression)
    assert result.get(timeout=IN_S) == 21


def test_chains_groups_and_chords(site: Site) -> None:
    steps = chain(add.s(1, 1), add.s(10), add.s(100)).delay()
    several = group(asking(add.s(n, n), {"gpu": n}) for n in (1, 2, 3)).delay()
    summed = chord([add.s(n) for n in range(4)], total.s()).delay()
    assert steps.get(timeout=IN_S) == 112
    assert several.get(timeout=IN_S) == [2, 4, 6]
    assert summed.get(timeout=IN_S) == 6


def test_what_beat_sends_is_parked_like_any_other(site: Site) -> None:
    starts = len(read("ticks"))
    with site.beat():
        wait_until(lambda: len(read("ticks")) >= starts + 2, "it has run twice")
    assert {line.split()[2] for line in read("ticks")} == {"3"}


def test_a_countdown_is_waited_for_outside_of_queue_and_broker(site: Site) -> None:
    starts = time.time()
    result = add.apply_async((1, 1), countdown=1)
    assert state(result) == "PARKED"
    assert site.client.call("GET", f"/tasks/{result.id}")["status"] == "delayed"
    assert result.get(timeout=IN_S) == 2
    assert time.time() - starts >= 1


def test_retries_ask_again_for_the_same_under_a_new_fence(site: Site) -> None:
    result = retries.apply_async((2,), resources={"gpu": 2})
    site.wait_for_state(result, "RETRY")
    assert result.get(timeout=IN_S) == "at try 2"
    fences = [int(line.split()[1]) for line in site.notes(result, "ran")]
    assert fences == sorted(set(fences))
    assert [line.split()[2] for line in site.notes(result, "ran")] == ["2", "2", "2"]


def test_retries_end_and_others_are_celerys_to_make(site: Site) -> None:
    hopeless, automatic = retries.delay(9), autoretries.delay()
    with pytest.raises(ValueError, match="not yet"):
        hopeless.get(timeout=IN_S)
    assert len(site.notes(hopeless, "ran")) == 3
    assert automatic.get(timeout=IN_S) == "in the end"


def test_what_is_rejected_comes_again_under_a_new_fence(site: Site) -> None:
    result = declines.delay()
    assert result.get(timeout=IN_S) == "here"
    assert len({line.split()[1] for line in site.notes(result, "ran")}) == 2


def test_another_may_take_its_place(site: Site) -> None:
    result = replaced.delay(5)
    assert result.get(timeout=IN_S) == 6
    assert [line.split()[0] for line in site.notes(result)] == ["ran", "ran"]
    assert site.notes(result, "ran")[1].endswith(" 2")


@pytest.mark.parametrize(("how", "made"), [("chain", 2), ("chord", 2)])
def test_several_tasks_may_replace_it_in_any_order(site: Site, how: str, made: int) -> None:
    results = [replaced_by_many.delay(how) for _ in range(8)]
    assert [result.get(timeout=IN_S) for result in results] == [made] * 8


def test_a_failure_gives_the_units_back_and_calls_what_is_linked(site: Site) -> None:
    result = fails.apply_async(link_error=note_error.s())
    with pytest.raises(ValueError, match="no luck"):
        result.get(timeout=IN_S)
    site.wait_for_note(result, "errback ValueError")


def test_what_can_never_be_granted_fails(site: Site) -> None:
    result = add.apply_async((1, 1), resources={"gpu": 100}, link_error=note_error.s())
    with pytest.raises(TaskNotGranted, match="100 of gpu") as why:
        result.get(timeout=IN_S)
    assert (why.value.status, why.value.code) == ("rejected", "exceeds_capacity")
    site.wait_for_note(result, "errback TaskNotGranted")
    assert not site.notes(result, "ran")


def test_a_chord_hears_of_a_part_that_will_never_run(site: Site) -> None:
    summed = chord([add.s(1), asking(add.s(2), {"gpu": 100})], total.s()).delay()
    with pytest.raises(Exception, match="100 of gpu"):
        summed.get(timeout=IN_S)


def test_a_parked_task_is_revoked_for_good(site: Site) -> None:
    with site.full():
        result, other = add.delay(1, 1), add.delay(2, 2)
        result.revoke()
        assert state(result) == "REVOKED"
        with pytest.raises(TaskRevokedError):
            result.get(timeout=IN_S)
        assert site.client.pool("gpus").queue_length == 1
    assert other.get(timeout=IN_S) == 4
    assert not site.notes(result, "ran")


def test_a_sent_task_that_has_not_begun_is_revoked_too(site: Site) -> None:
    result = add.apply_async((1, 1), queue="unserved")
    wait_until(lambda: site.client.task(str(result.id)).status == "sent", "it is sent")
    result.revoke()
    assert (state(result), site.used()) == ("REVOKED", 0)
    with Redis.from_url(f"{site.redis_url}/1") as broker:
        wait_until(lambda: broker.llen("unserved") == 2, "its worker is told")
        broker.rename("unserved", "celery")
    wait_until(lambda: not site.knows(result), "it was heard")
    assert not site.notes(result, "ran")


def test_a_last_word_that_is_lost_on_its_way_is_said_again(site: Site) -> None:
    result = add.apply_async((1, 1), resources={"gpu": 100}, queue="unserved")
    with Redis.from_url(f"{site.redis_url}/1") as broker:
        wait_until(lambda: broker.llen("unserved") == 1, "it is told")
        broker.delete("unserved")
        wait_until(lambda: broker.llen("unserved") == 1, "it is told once more")
        broker.rename("unserved", "celery")
    with pytest.raises(TaskNotGranted, match="100 of gpu"):
        result.get(timeout=IN_S)
    wait_until(lambda: not site.knows(result), "it was heard")


def test_what_an_operator_cancels_is_revoked_and_what_is_too_late_is(site: Site) -> None:
    with site.full():
        cancelled, late = add.delay(1, 1), add.apply_async((1, 1), expires=1)
        site.client.cancel(site.request(cancelled)["id"])
        for result in (cancelled, late):
            with pytest.raises(TaskRevokedError):
                result.get(timeout=IN_S)
    assert not site.notes(cancelled, "ran")


def test_a_message_of_a_sender_without_poolkeeper_is_parked_by_the_worker(site: Site) -> None:
    with site.full(), publishing_directly():
        result = add.apply_async((4, 4), compression="gzip")
        wait_until(lambda: site.knows(result), "it is parked")
        assert (state(result), site.request(result)["status"]) == ("PARKED", "queued")
        assert not site.notes(result, "ran")
    assert result.get(timeout=IN_S) == 8


def _unacked(broker: Redis) -> set[object]:
    tags: Any = broker.hkeys("unacked")
    return set(tags)


def test_of_several_copies_one_runs(site: Site) -> None:
    result = patient.apply_async(queue="unserved")
    with Redis.from_url(f"{site.redis_url}/1") as broker:
        wait_until(lambda: broker.llen("unserved"), "it is sent")
        message: Any = broker.rpop("unserved")
        before = _unacked(broker)  # of workers that were killed
        broker.lpush("celery", message, message, message)
        site.wait_for_note(result, "began")
        wait_until(lambda: not broker.llen("celery"), "all of them are taken")
        site.go(result)
        assert result.get(timeout=IN_S) == "done"
        wait_until(lambda: _unacked(broker) <= before, "all of them are acknowledged")
    assert len(site.notes(result, "began")) == 1
    assert state(result) == "SUCCESS"
