"""Holders that have to leave, against the real API: what they learn, what they say, and how they come back."""

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
    """Has a holder leave for a waiter that ranks higher, and says for whom."""

    def leave(held: Allocation) -> str:
        waiter = client.submit("team", gpu=8, preemption_class=8)
        api.preempt(client.workspace, waiter.id, held.request.id, held.fence)
        return waiter.id

    return leave


class TestByHand:
    def test_checkpoint_and_what_is_told_of_it(self, api: Api, client: Client) -> None:
        held = client.submit("team", gpu=8, checkpoint="auto")
        fence = held.fence or 0
        beat = client.checkpoint(held.id, fence, "completed", reference="step 7")
        assert (beat.status, beat.directive, beat.is_allocated) == ("allocated", "continue", True)
        waiter = client.submit("team", gpu=8, preemption_class=8)
        api.preempt(client.workspace, waiter.id, held.id, fence)
        beat = client.checkpoint(held.id, fence, "defer", seconds=60)
        assert (beat.status, beat.directive, beat.is_allocated) == ("preempting", "checkpoint", True)
        now = client.request(held.id)
        assert (now.directive, now.deadline, now.preempted_by) == ("checkpoint", beat.deadline, waiter.id)
        assert now.checkpoint_reference == "step 7"
        left = client.checkpoint(held.id, fence, "completed", reference="step 9")
        assert (left.status, left.directive, left.is_allocated) == ("queued", None, False)
        now = client.request(held.id)
        assert (now.preemptions, now.resume, now.checkpoint_reference) == (1, True, "step 9")
        assert now.reason
        assert now.reason.message == f"preempted for request {waiter.id}, which ranks higher"
        told = client.timeline(waiter.id)[1]
        assert (told.event, told.rank, told.victims) == ("clearing", Rank(10, 8), (Victim(held.id, Rank(10, 5)),))
        assert client.timeline(held.id)[2].by_rank == Rank(10, 8)

    def test_vacated_and_not_asked(self, api: Api, client: Client) -> None:
        held = client.submit("team", gpu=8, retries=0)
        with pytest.raises(errors.Conflict) as refused:
            client.release(held.id, held.fence or 0, "vacated")
        assert (refused.value.code, isinstance(refused.value, errors.StaleFence)) == ("not_leaving", False)
        waiter = client.submit("team", gpu=8, preemption_class=8)
        api.preempt(client.workspace, waiter.id, held.id, held.fence or 0)
        assert client.release(held.id, held.fence or 0, "vacated").status == "preempted"

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
        told: Told = []

        def enter() -> Allocation:
            return client.allocation(
                "team",
                gpu=8,
                lease_s=LEASE_S,
                checkpoint="manual",
                idempotency_key="run",
                wait_s=30,
                on_directive=lambda _, directive: told.append(directive),
            )

        with enter() as held:
            waiter = contended(held)
            wait_until(lambda: held.directive == "checkpoint", "a heartbeat tells it")
            assert held.deadline == client.request(held.request.id).deadline
            assert (held.lost, held.left) == (False, False)
            held.ensure()
            assert held.checkpoint("progress").is_allocated
            assert held.checkpoint("completed", reference="half").is_allocated is False
            assert (held.lost, held.left) == (False, True)
        assert client.request(held.request.id).status == "queued"
        client.release(waiter, client.request(waiter).fence or 0)
        with enter() as again:
            assert (again.request.id, again.request.checkpoint_reference) == (held.request.id, "half")
            assert again.fence > held.fence
        assert client.request(held.request.id).outcome == "succeeded"
        wait_until(lambda: told == ["checkpoint"], "it was told once")

    def test_it_leaves_as_it_is(self, contended: Callable[[Allocation], str], client: Client) -> None:
        with client.allocation("team", gpu=8, lease_s=LEASE_S, retries=1) as held:
            assert held.vacate() is False
            assert (held.left, client.request(held.request.id).status) == (False, "allocated")
            contended(held)
            wait_until(lambda: held.directive == "terminate", "a heartbeat tells it")
            assert held.lost is False
            assert held.vacate() is True
        assert (held.lost, client.request(held.request.id).status) == (False, "queued")

    def test_it_is_done_meanwhile(self, contended: Callable[[Allocation], str], client: Client) -> None:
        with client.allocation("team", gpu=8) as held:
            contended(held)
        assert (client.request(held.request.id).status, held.left) == ("released", False)

    def test_it_was_too_late(self, api: Api, contended: Callable[[Allocation], str], client: Client) -> None:
        def work() -> None:
            with client.allocation("team", gpu=8, lease_s=LEASE_S) as held:
                contended(held)
                api.depart(client.workspace)
                wait_until(lambda: held.lost, "the heartbeat is refused")
                assert held.directive == "kill"

        with pytest.raises(errors.AllocationLost, match="which is preempted"):
            work()

    @pytest.mark.parametrize(
        "word", [lambda held: held.vacate(), lambda held: held.checkpoint("completed")], ids=["vacated", "completed"]
    )
    def test_a_word_that_comes_too_late_says_that_all_is_lost(
        self, api: Api, contended: Callable[[Allocation], str], client: Client, word: Callable[[Allocation], object]
    ) -> None:
        def work() -> None:
            with client.allocation("team", gpu=8) as held:
                contended(held)
                api.depart(client.workspace)
                with pytest.raises(errors.AllocationLost):
                    word(held)
                assert (held.lost, held.directive, held.left) == (True, "kill", False)

        with pytest.raises(errors.AllocationLost):
            work()

    def test_a_heartbeat_refused_because_we_have_just_left_is_no_loss(self, stub: StubServer) -> None:
        granted = reply({"id": "r", "status": "allocated", "fence": 3, "lease_s": 1, "pool": "p"}, 201)

        def leaves(handler: StubHandler) -> None:
            stub.actions.appendleft(refuse(409, "stale_fence"))
            wait_until(lambda: len(stub.calls) == 3, "a heartbeat comes while the word is under way")
            reply({"id": "r", "status": "queued", "directive": None})(handler)

        stub.script(granted, leaves)
        with Client(stub.url, tries=1).allocation("team") as held:
            with pytest.raises(errors.AllocationLost, match="had to leave just then"):
                held.checkpoint("completed")
            assert (held.lost, held.left) == (False, True)
        assert [each.path.rpartition("/")[2] for each in stub.calls] == ["requests", "checkpoint", "heartbeat"]

    def test_what_is_granted_again_at_once_is_not_what_was_held(self, stub: StubServer) -> None:
        granted = {"id": "r", "status": "allocated", "fence": 3, "lease_s": 60, "pool": "p"}
        stub.script(reply(granted, 201), reply(granted | {"fence": 4}))
        with Client(stub.url, tries=1).allocation("team") as held:
            assert held.vacate() is True
        assert len(stub.calls) == 2, "no release of what somebody else may hold by now"

    def test_it_listens_often_for_the_next_directive(self, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 0.01)
        granted = reply({"id": "r", "status": "allocated", "fence": 3, "lease_s": 6, "pool": "p"}, 201)
        leaving = reply({"id": "r", "status": "preempting", "directive": "checkpoint"})
        stub.script(granted, *[leaving] * 40, *[reply({"id": "r", "status": "preempting", "directive": "terminate"})] * 999)
        with Client(stub.url, tries=1).allocation("team") as held:
            wait_until(lambda: held.directive == "terminate", "the next directive comes", 10)
            stub.actions.clear()
            stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)
