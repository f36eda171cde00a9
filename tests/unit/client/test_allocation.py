"""Allocations of a `with` block against the real API: entry, heartbeats, losses and exit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, main_thread

import pytest
from poolkeeper import Allocation, Client, errors
from poolkeeper.models import Request

from tests.support.backends import wait_until
from tests.support.client_api import Api
from tests.support.flaky_proxy import FlakyProxy
from tests.support.stub_server import StubHandler, StubServer, refuse, reply
from tests.unit.client.conftest import LeaseClock

LEASE_S = 1


class WorkError(Exception):
    """The exception that a block raises."""


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Call the function in another thread during the context, and raise its exception here."""
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(act)
        yield
        done.result()


def only(client: Client) -> Request:
    """Return the only request of the workspace."""
    [request] = client.requests()
    return request


def interrupt_when(condition: Callable[[], object]) -> None:
    """Send Ctrl-C as soon as the condition holds."""
    wait_until(condition, "the time of the interrupt comes")
    signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)


class TestGoingIn:
    def test_it_is_held_inside_and_released_after(self, client: Client) -> None:
        with client.allocation("team", gpu=2, labels={"run": "1"}) as allocation:
            assert (allocation.pool, allocation.resources, allocation.directive) == (
                "gpus",
                {"gpu": 2, "step_run": 1},
                "continue",
            )
            assert (allocation.lost, allocation.suspected, allocation.deadline) == (False, False, None)
            assert allocation.fence == client.request(allocation.request.id).fence
            assert client.pool("gpus").used["gpu"] == 2
            allocation.ensure()
        ended = client.request(allocation.request.id)
        assert (ended.status, ended.outcome, ended.labels) == ("released", "succeeded", {"run": "1"})
        assert client.pool("gpus").used.get("gpu", 0) == 0

    def test_it_is_waited_for(self, client: Client) -> None:
        first = client.submit("team", gpu=8)

        def free_when_it_waits() -> None:
            wait_until(lambda: client.pool("gpus").queue_length == 1, "it waits")
            self.free(client, first)

        with meanwhile(free_when_it_waits), client.allocation("team", gpu=4, wait_s=30) as allocation:
            assert allocation.request.is_allocated
        assert client.request(allocation.request.id).outcome == "succeeded"

    @staticmethod
    def free(client: Client, request: Request) -> Request:
        return client.release(request.id, request.fence or 0)

    def test_what_can_never_be_granted_is_rejected_with_the_reason(self, client: Client) -> None:
        why = "asks 9 of gpu; the pool has 8 in all"
        with pytest.raises(errors.RequestRejected, match=why) as caught, client.allocation("team", gpu=9):
            pytest.fail("it was entered")
        assert caught.value.request.reason is not None
        assert caught.value.request.reason.code == "exceeds_capacity"

    def test_when_the_time_is_up_it_is_cancelled(self, client: Client) -> None:
        client.submit("team", gpu=8)
        why = r"is still queued after 0\.2 s"
        with pytest.raises(TimeoutError, match=why) as caught, client.allocation("team", gpu=1, wait_s=0.2):
            pytest.fail("it was entered")
        assert isinstance(caught.value, errors.WaitTimeout)
        assert client.request(caught.value.request.id).status == "cancelled"

    def test_what_is_granted_in_the_last_moment_is_taken(self, api: Api, client: Client) -> None:
        first = client.submit("team", gpu=8)

        class TooLate(Client):
            """A client whose request is granted between the last poll and the cancel."""

            def cancel(self, request_id: str) -> Request:
                TestGoingIn.free(client, first)
                return super().cancel(request_id)

        with TooLate(api.url, workspace=client.workspace).allocation("team", gpu=1, wait_s=0) as allocation:
            assert allocation.request.is_allocated
        assert client.request(allocation.request.id).outcome == "succeeded"

    def test_a_cancelled_request_is_not_granted(self, client: Client) -> None:
        client.submit("team", gpu=8)

        def cancel() -> None:
            wait_until(lambda: client.pool("gpus").queue_length == 1, "it waits")
            [waiting] = client.requests(status="queued")
            client.cancel(waiting.id)

        with meanwhile(cancel), pytest.raises(errors.NotGranted, match="is cancelled"), client.allocation("team", gpu=1):
            pytest.fail("it was entered")

    def test_a_refused_ask_leaves_nothing(self, client: Client) -> None:
        with pytest.raises(errors.BadRequest), client.allocation("team", gpu=-1):
            pytest.fail("it was entered")
        assert list(client.requests()) == []

    def test_a_lost_answer_to_the_submit_makes_no_second_request(
        self, proxy: FlakyProxy, proxied: Client, client: Client
    ) -> None:
        proxy.lose_answer_to("POST /api/v1/requests?wait_s=")
        with proxied.allocation("team", gpu=2) as allocation:
            assert only(client).id == allocation.request.id
        assert (proxy.lost_answers, only(client).outcome) == (1, "succeeded")

    def test_one_is_for_one_use(self, client: Client) -> None:
        allocation = client.allocation("team", gpu=1)
        with pytest.raises(RuntimeError, match="was not entered"):
            allocation.ensure()
        with allocation:
            pass
        with pytest.raises(RuntimeError, match="for one use"), allocation:
            pytest.fail("it was entered")

    def test_a_key_of_ones_own_finds_what_was_asked_before(self, client: Client) -> None:
        before = client.submit("team", gpu=2, idempotency_key="job-7")
        with client.allocation("team", gpu=2, idempotency_key="job-7") as allocation:
            assert allocation.request.id == before.id
        with pytest.raises(errors.NotGranted, match="is released"), client.allocation("team", gpu=2, idempotency_key="job-7"):
            pytest.fail("it was entered")


class TestInterrupted:
    def test_while_it_waits(self, client: Client) -> None:
        client.submit("team", gpu=8)
        interrupt = meanwhile(lambda: interrupt_when(lambda: client.pool("gpus").queue_length == 1))
        with interrupt, pytest.raises(KeyboardInterrupt), client.allocation("team", gpu=1):
            pytest.fail("it was entered")
        assert [request.status for request in client.requests()] == ["cancelled", "allocated"]

    @pytest.mark.parametrize("taken", [0, 8])
    def test_while_the_answer_to_the_submit_is_lost(self, proxy: FlakyProxy, client: Client, taken: int) -> None:
        if taken:
            client.submit("team", component_type="orchestrator", gpu=taken)

        def interrupted(_: float) -> None:
            raise KeyboardInterrupt

        proxy.lose_answer_to("POST /api/v1/requests?wait_s=")
        ours = Client(proxy.url, workspace=client.workspace, sleep=interrupted)
        with pytest.raises(KeyboardInterrupt), ours.allocation("team", gpu=1):
            pytest.fail("it was entered")
        newest = next(client.requests())
        assert (newest.status, newest.outcome) == (("cancelled", None) if taken else ("released", "failed"))
        assert proxy.lost_answers == 1

    def test_while_the_block_runs(self, client: Client) -> None:
        interrupt = meanwhile(lambda: interrupt_when(lambda: client.pool("gpus").active_count == 1))
        with interrupt, pytest.raises(KeyboardInterrupt), client.allocation("team", gpu=1):
            wait_until(lambda: False, "the interrupt comes")
        assert only(client).outcome == "failed"

    def test_while_it_is_being_released(self, proxy: FlakyProxy, client: Client) -> None:
        def interrupted(_: float) -> None:
            proxy.open()
            raise KeyboardInterrupt

        ours = Client(proxy.url, workspace=client.workspace, sleep=interrupted)
        with pytest.raises(KeyboardInterrupt), ours.allocation("team", gpu=1):
            proxy.close()
        assert only(client).outcome == "succeeded"

    def test_without_an_answer_nothing_is_left_behind(self, proxy: FlakyProxy, client: Client) -> None:
        proxy.lose_answer_to("POST /api/v1/requests?wait_s=")
        ours = Client(proxy.url, workspace=client.workspace, tries=1)
        with pytest.raises(errors.Unavailable), ours.allocation("team", gpu=1):
            pytest.fail("it was entered")
        assert (only(client).status, only(client).outcome) == ("released", "failed")


class TestKept:
    def test_by_heartbeats_of_which_a_busy_main_thread_knows_nothing(self, api: Api, client: Client) -> None:
        with client.allocation("team", gpu=1, lease_s=1) as allocation:
            until, spins = time.monotonic() + 1.5, 0
            while time.monotonic() < until:
                spins += sum(range(100))
            assert api.sweep(client.workspace) == 0
            allocation.ensure()
        assert only(client).outcome == "succeeded"

    def test_without_them_it_would_lapse(self, api: Api, client: Client) -> None:
        request = client.submit("team", gpu=1, lease_s=LEASE_S)
        assert api.lapse(client.workspace) == 1
        assert client.request(request.id).status == "expired"

    def test_through_an_outage_shorter_than_the_lease(self, proxy: FlakyProxy, proxied: Client) -> None:
        with proxied.allocation("team", gpu=1, lease_s=3) as allocation:
            first = proxied.request(allocation.request.id).lease_expires_at
            proxy.close()
            with pytest.raises(errors.Unavailable):
                proxied.clone(tries=1).whoami()
            proxy.open()
            wait_until(lambda: proxied.request(allocation.request.id).lease_expires_at != first, "a heartbeat gets through")
            assert (allocation.lost, allocation.suspected) == (False, False)

    def test_in_several_threads_at_once(self, client: Client) -> None:
        def work(_: int) -> str:
            with client.allocation("team", gpu=3, wait_s=30) as allocation:
                allocation.ensure()
            return allocation.request.id

        with ThreadPoolExecutor(4) as threads:
            ids = list(threads.map(work, range(20)))
        assert len(set(ids)) == 20
        assert {request.outcome for request in client.requests()} == {"succeeded"}
        assert client.pool("gpus").active_count == 0


class TestLost:
    def test_the_holder_learns_it_from_the_next_heartbeat(self, api: Api, client: Client) -> None:
        lines: list[tuple[Allocation, str]] = []

        def work() -> None:
            with client.allocation(
                "team", gpu=1, lease_s=LEASE_S, on_directive=lambda *arguments: lines.append(arguments)
            ) as allocation:
                assert api.lapse(client.workspace) == 1
                wait_until(lambda: allocation.lost, "the heartbeat is refused")
                wait_until(lambda: lines, "the callback is called")
                assert (allocation.directive, lines) == ("kill", [(allocation, "kill")])
                with pytest.raises(errors.AllocationLost) as ensured:
                    allocation.ensure()
                assert ensured.value.suspected is False

        with pytest.raises(errors.AllocationLost, match="expired") as caught:
            work()
        assert caught.value.suspected is False
        assert only(client).status == "expired"

    def test_it_is_known_at_the_end_at_the_latest(self, api: Api, client: Client) -> None:
        with pytest.raises(errors.AllocationLost), client.allocation("team", gpu=1) as allocation:
            client.drop(allocation.request.id)

    def test_what_the_block_raised_goes_first(self, api: Api, client: Client) -> None:
        def work() -> None:
            with client.allocation("team", gpu=1) as allocation:
                client.drop(allocation.request.id)
                raise WorkError

        with pytest.raises(WorkError) as caught:
            work()
        assert "AllocationLost" in caught.value.__notes__[0]

    def test_an_outage_as_long_as_the_lease_is_a_suspicion(
        self, lease_clock: LeaseClock, proxy: FlakyProxy, proxied: Client, client: Client
    ) -> None:
        with proxied.allocation("team", gpu=1) as allocation:
            proxy.close()
            lease_clock.ahead_s += 59
            early = allocation.suspected
            lease_clock.ahead_s += 1
            assert (early, allocation.suspected) == (False, True)
            assert allocation.lost is False
            with pytest.raises(errors.AllocationLost, match="may have ended") as caught:
                allocation.ensure()
            assert caught.value.suspected is True
            proxy.open()
            wait_until(lambda: not allocation.suspected, "the lease was kept after all")
            allocation.ensure()
        assert only(client).outcome == "succeeded"

    def test_and_a_loss_when_the_server_says_so(
        self, api: Api, lease_clock: LeaseClock, proxy: FlakyProxy, proxied: Client
    ) -> None:
        def work() -> None:
            with proxied.allocation("team", gpu=1) as allocation:
                proxy.close()
                api.lapse(proxied.workspace)
                lease_clock.ahead_s += 60
                assert allocation.suspected is True
                proxy.open()
                wait_until(lambda: allocation.lost, "a heartbeat is refused")

        with pytest.raises(errors.AllocationLost):
            work()

    def test_a_grant_that_lapsed_before_it_was_learnt_of_is_not_entered(self, api: Api, client: Client) -> None:
        client.submit("team", gpu=2, idempotency_key="job-7")

        class Late(Client):
            """A client whose lease lapses between the answer to the submit and the first heartbeat."""

            def heartbeat(self, request_id: str, fence: int) -> object:  # type: ignore[override]
                api.lapse(self.workspace)
                return super().heartbeat(request_id, fence)

        late = Late(api.url, workspace=client.workspace)
        with pytest.raises(errors.AllocationLost), late.allocation("team", gpu=2, idempotency_key="job-7"):
            pytest.fail("it was entered")


class TestGoingOut:
    def test_a_block_that_raises_has_failed(self, client: Client) -> None:
        with pytest.raises(WorkError), client.allocation("team", gpu=1):
            raise WorkError
        assert (only(client).status, only(client).outcome) == ("released", "failed")

    def test_a_lost_answer_to_the_release_is_no_matter(self, proxy: FlakyProxy, proxied: Client, client: Client) -> None:
        with proxied.allocation("team", gpu=1) as allocation:
            proxy.lose_answer_to(f"POST /api/v1/requests/{allocation.request.id}/release ")
        assert (proxy.lost_answers, only(client).outcome) == (1, "succeeded")

    def test_a_release_that_comes_late_is_no_loss(self, api: Api, proxy: FlakyProxy, client: Client) -> None:
        def away_for_an_hour(_: float) -> None:
            assert api.lapse(client.workspace) == 1
            proxy.open()

        ours = Client(proxy.url, workspace=client.workspace, sleep=away_for_an_hour)
        with ours.allocation("team", gpu=1):
            proxy.close()
        assert only(client).status == "expired"

    def test_without_a_server_there_is_a_warning(self, proxy: FlakyProxy, client: Client) -> None:
        ours = Client(proxy.url, workspace=client.workspace, tries=1)
        text = "its units are freed when its lease ends: no answer from"
        with pytest.warns(RuntimeWarning, match=text), ours.allocation("team", gpu=1):
            proxy.close()

    def test_and_an_error_if_nothing_else_gives_the_units_back(self, proxy: FlakyProxy, client: Client) -> None:
        ours = Client(proxy.url, workspace=client.workspace, tries=1)
        with pytest.raises(errors.Unavailable), ours.allocation("team", gpu=1, lease_s=None):
            proxy.close()

    def test_and_a_note_if_the_block_raised(self, proxy: FlakyProxy, client: Client) -> None:
        ours = Client(proxy.url, workspace=client.workspace, tries=1)

        def work() -> None:
            with ours.allocation("team", gpu=1, lease_s=None) as allocation:
                proxy.close()
                assert allocation.suspected is False
                raise WorkError

        with pytest.raises(WorkError) as caught:
            work()
        assert "Unavailable: no answer from" in caught.value.__notes__[0]

    def test_no_heartbeat_comes_after_it(self, client: Client) -> None:
        with client.allocation("team", gpu=1, lease_s=LEASE_S) as allocation:
            keeper = allocation._heartbeats
        assert keeper is not None
        wait_until(lambda: not keeper._thread.is_alive(), "the thread ends")
        assert (allocation.lost, allocation.directive) == (False, "continue")


class TestDirectives:
    """Directives at any time and in any order, which only a stub server sends."""

    GRANTED = staticmethod(reply({"id": "r", "status": "allocated", "fence": 3, "lease_s": 1, "pool": "p"}, 201))

    @staticmethod
    def beat(directive: str) -> Callable[..., None]:
        return reply({"id": "r", "status": "preempting", "directive": directive, "deadline": "2026-01-31T12:00:00.000Z"})

    def test_each_is_told_once_in_a_thread_that_delays_nothing(self, stub: StubServer) -> None:
        lines, done = [], Event()

        def slow(allocation: Allocation, directive: str) -> None:
            lines.append(directive)
            assert done.wait(20)

        stub.script(self.GRANTED, *[self.beat("checkpoint")] * 2, *[self.beat("terminate")] * 2, *[self.beat("continue")] * 9)
        with Client(stub.url, tries=1).allocation("team", on_directive=slow) as allocation:
            wait_until(lambda: len(lines) == 3, "three directives came")
            assert lines == ["checkpoint", "terminate", "continue"]
            assert (allocation.directive, allocation.deadline and allocation.deadline.year) == ("continue", 2026)
            done.set()
            stub.actions.clear()
            stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)

    def test_a_refusal_of_a_heartbeat_that_the_release_overtook_is_no_loss(self, stub: StubServer) -> None:
        def refuses_late(handler: StubHandler) -> None:
            wait_until(lambda: stub.calls[-1].path.endswith("/release"), "the release is here")
            refuse(409, "stale_fence")(handler)

        stub.script(self.GRANTED, refuses_late, reply({"id": "r", "status": "released", "outcome": "succeeded"}))
        with Client(stub.url, tries=1).allocation("team") as allocation:
            keeper = allocation._heartbeats
            wait_until(lambda: len(stub.calls) == 2, "a heartbeat is under way")
        assert keeper is not None
        wait_until(lambda: not keeper._thread.is_alive(), "the heartbeat is answered")
        assert (allocation.lost, allocation.directive) == (False, "continue")

    def test_heartbeats_go_on_whatever_they_are_answered(self, stub: StubServer) -> None:
        odd = [refuse(401, "no_token"), refuse(500, "bug"), reply([]), reply({"deadline": "soon", "id": "r", "status": "x"})]
        stub.script(self.GRANTED, *odd, *[self.beat("checkpoint")] * 99)
        with Client(stub.url, tries=1).allocation("team") as allocation:
            wait_until(lambda: allocation.directive == "checkpoint", "a heartbeat is understood")
            assert allocation.lost is False
            stub.actions.clear()
            stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)


def test_a_client_of_a_thread_shares_nothing(client: Client) -> None:
    twin = client.clone()
    assert twin._transport is not client._transport
    assert twin.configuration is client.configuration
