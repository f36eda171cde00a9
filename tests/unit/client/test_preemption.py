"""Preempted allocations against the real API: directives, reports of checkpoints, and the next grant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from poolkeeper import Allocation, Client, errors, heartbeats
from poolkeeper.models import Rank, Victim

from tests.support.backends import wait_until
from tests.support.client_api import Api
from tests.support.stub_server import StubHandler, StubServer, refuse, reply

LEASE_S = 1
Told = list[str]


@pytest.fixture
def contended(api: Api, client: Client) -> Callable[[Allocation], str]:
    """Return a function that preempts a holder for a waiter of higher rank, and returns the waiter's id."""

    def leave(allocation: Allocation) -> str:
        waiter = client.submit("team", gpu=8, preemption_class=8)
        api.preempt(client.workspace, waiter.id, allocation.request.id, allocation.fence)
        return waiter.id

    return leave


class TestByHand:
    def test_checkpoint_and_what_is_told_of_it(self, api: Api, client: Client) -> None:
        request = client.submit("team", gpu=8, checkpoint="auto")
        fence = request.fence or 0
        beat = client.checkpoint(request.id, fence, "completed", reference="step 7")
        assert (beat.status, beat.directive, beat.is_allocated) == ("allocated", "continue", True)
        waiter = client.submit("team", gpu=8, preemption_class=8)
        api.preempt(client.workspace, waiter.id, request.id, fence)
        beat = client.checkpoint(request.id, fence, "defer", seconds=60)
        assert (beat.status, beat.directive, beat.is_allocated) == ("preempting", "checkpoint", True)
        now = client.request(request.id)
        assert (now.directive, now.deadline, now.preempted_by) == ("checkpoint", beat.deadline, waiter.id)
        assert now.checkpoint_reference == "step 7"
        left = client.checkpoint(request.id, fence, "completed", reference="step 9")
        assert (left.status, left.directive, left.is_allocated) == ("queued", None, False)
        now = client.request(request.id)
        assert (now.preemptions, now.resume, now.checkpoint_reference) == (1, True, "step 9")
        assert now.reason
        assert now.reason.message == f"preempted for request {waiter.id}, which ranks higher"
        lines = client.timeline(waiter.id)[1]
        assert (lines.event, lines.rank, lines.victims) == ("clearing", Rank(10, 8), (Victim(request.id, Rank(10, 5)),))
        assert client.timeline(request.id)[2].by_rank == Rank(10, 8)

    def test_vacated_and_not_asked(self, api: Api, client: Client) -> None:
        request = client.submit("team", gpu=8, retries=0)
        with pytest.raises(errors.Conflict) as refused:
            client.release(request.id, request.fence or 0, "vacated")
        assert (refused.value.code, isinstance(refused.value, errors.StaleFence)) == ("not_leaving", False)
        waiter = client.submit("team", gpu=8, preemption_class=8)
        api.preempt(client.workspace, waiter.id, request.id, request.fence or 0)
        assert client.release(request.id, request.fence or 0, "vacated").status == "preempted"

    def test_a_word_whose_answer_is_lost_is_said_again(self, stub: StubServer) -> None:
        def cuts(handler: StubHandler) -> None:
            handler.cut()

        stub.script(cuts, reply({"id": "r", "status": "queued", "directive": None}))
        assert Client(stub.url, sleep=lambda _: None).checkpoint("r", 3, "completed").is_allocated is False
        first, second = stub.calls
        assert first.body == second.body == {"fence": 3, "state": "completed"}

    def test_a_policy_has_a_profile(self, client: Client) -> None:
        assert client.set_policy("gpus", "team", profile="service").profile == "service"
        assert client.set_policy("gpus", "team").profile == "batch"


class TestInABlock:
    def test_it_learns_of_it_saves_its_work_and_comes_back_for_the_rest(
        self, contended: Callable[[Allocation], str], client: Client
    ) -> None:
        lines: Told = []

        def enter() -> Allocation:
            return client.allocation(
                "team",
                gpu=8,
                lease_s=LEASE_S,
                checkpoint="manual",
                idempotency_key="run",
                wait_s=30,
                on_directive=lambda _, directive: lines.append(directive),
            )

        with enter() as allocation:
            waiter = contended(allocation)
            wait_until(lambda: allocation.directive == "checkpoint", "a heartbeat tells it")
            assert allocation.deadline == client.request(allocation.request.id).deadline
            assert (allocation.lost, allocation.left) == (False, False)
            allocation.ensure()
            assert allocation.checkpoint("progress").is_allocated
            assert allocation.checkpoint("completed", reference="half").is_allocated is False
            assert (allocation.lost, allocation.left) == (False, True)
        assert client.request(allocation.request.id).status == "queued"
        client.release(waiter, client.request(waiter).fence or 0)
        with enter() as again:
            assert (again.request.id, again.request.checkpoint_reference) == (allocation.request.id, "half")
            assert again.fence > allocation.fence
        assert client.request(allocation.request.id).outcome == "succeeded"
        wait_until(lambda: lines == ["checkpoint"], "it was told once")

    def test_it_leaves_as_it_is(self, contended: Callable[[Allocation], str], client: Client) -> None:
        with client.allocation("team", gpu=8, lease_s=LEASE_S, retries=1) as allocation:
            assert allocation.vacate() is False
            assert (allocation.left, client.request(allocation.request.id).status) == (False, "allocated")
            contended(allocation)
            wait_until(lambda: allocation.directive == "terminate", "a heartbeat tells it")
            assert allocation.lost is False
            assert allocation.vacate() is True
        assert (allocation.lost, client.request(allocation.request.id).status) == (False, "queued")

    def test_it_is_done_meanwhile(self, contended: Callable[[Allocation], str], client: Client) -> None:
        with client.allocation("team", gpu=8) as allocation:
            contended(allocation)
        assert (client.request(allocation.request.id).status, allocation.left) == ("released", False)

    def test_it_was_too_late(self, api: Api, contended: Callable[[Allocation], str], client: Client) -> None:
        def work() -> None:
            with client.allocation("team", gpu=8, lease_s=LEASE_S) as allocation:
                contended(allocation)
                api.depart(client.workspace)
                wait_until(lambda: allocation.lost, "the heartbeat is refused")
                assert allocation.directive == "kill"

        with pytest.raises(errors.AllocationLost, match="which is preempted"):
            work()

    @pytest.mark.parametrize(
        "word",
        [lambda allocation: allocation.vacate(), lambda allocation: allocation.checkpoint("completed")],
        ids=["vacated", "completed"],
    )
    def test_a_word_that_comes_too_late_says_that_all_is_lost(
        self, api: Api, contended: Callable[[Allocation], str], client: Client, word: Callable[[Allocation], object]
    ) -> None:
        def work() -> None:
            with client.allocation("team", gpu=8) as allocation:
                contended(allocation)
                api.depart(client.workspace)
                with pytest.raises(errors.AllocationLost):
                    word(allocation)
                assert (allocation.lost, allocation.directive, allocation.left) == (True, "kill", False)

        with pytest.raises(errors.AllocationLost):
            work()

    def test_a_heartbeat_refused_because_we_have_just_left_is_no_loss(
        self, stub: StubServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 60)  # the test sends the only heartbeat
        granted = reply({"id": "r", "status": "allocated", "fence": 3, "lease_s": 180, "pool": "p"}, 201)

        def leaves(handler: StubHandler) -> None:
            stub.actions.appendleft(refuse(409, "stale_fence"))
            assert allocation._heartbeats
            allocation._heartbeats._send_heartbeat()  # while the checkpoint is under way
            reply({"id": "r", "status": "queued", "directive": None})(handler)

        stub.script(granted, leaves)
        with Client(stub.url, tries=1).allocation("team") as allocation:
            with pytest.raises(errors.AllocationLost, match="got a directive to leave during this call"):
                allocation.checkpoint("completed")
            assert (allocation.lost, allocation.left) == (False, True)
        assert [each.path.rpartition("/")[2] for each in stub.calls] == ["requests?wait_s=30.0", "checkpoint", "heartbeat"]

    def test_a_grant_after_a_wait_in_the_submit_is_confirmed(self, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 60)  # the thread sends none
        times = {"submitted_at": "2026-01-31T12:00:00.000Z", "granted_at": "2026-01-31T12:00:20.000Z"}
        granted = {"id": "r", "status": "allocated", "fence": 3, "lease_s": 180, "pool": "p", **times}
        stub.script(reply(granted, 201), reply({"id": "r", "status": "allocated", "directive": "continue"}))
        stub.script(reply(granted | {"status": "released", "outcome": "succeeded"}))
        with Client(stub.url, tries=1).allocation("team", wait_s=45) as allocation:
            assert not allocation.suspected
        paths = [each.path.rpartition("/")[2] for each in stub.calls]
        assert paths == ["requests?wait_s=30.0", "heartbeat", "release"]

    def test_what_is_granted_again_at_once_is_not_what_was_held(self, stub: StubServer) -> None:
        granted = {"id": "r", "status": "allocated", "fence": 3, "lease_s": 60, "pool": "p"}
        stub.script(reply(granted, 201), reply(granted | {"fence": 4}))
        with Client(stub.url, tries=1).allocation("team") as allocation:
            assert allocation.vacate() is True
        assert len(stub.calls) == 2, "no release of units that another request may hold by now"

    def test_it_listens_often_for_the_next_directive(self, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 0.01)
        granted = reply({"id": "r", "status": "allocated", "fence": 3, "lease_s": 6, "pool": "p"}, 201)
        leaving = reply({"id": "r", "status": "preempting", "directive": "checkpoint"})
        stub.script(granted, *[leaving] * 40, *[reply({"id": "r", "status": "preempting", "directive": "terminate"})] * 999)
        with Client(stub.url, tries=1).allocation("team") as allocation:
            wait_until(lambda: allocation.directive == "terminate", "the next directive comes", 10)
            stub.actions.clear()
            stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)
