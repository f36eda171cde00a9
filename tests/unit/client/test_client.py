"""The methods of the client, each against the real API."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest
from poolkeeper import Client, errors, request_spec
from poolkeeper.models import Change, Request

from tests.support.client_api import Api
from tests.support.flaky_proxy import FlakyProxy


class TestRequests:
    def test_submit_look_heartbeat_release(self, client: Client) -> None:
        before = datetime.now(UTC).replace(microsecond=0)
        request = client.submit("team", gpu=2, labels={"run": "7"}, walltime_s=60, preemption_class=3)
        assert (request.status, request.pool, request.resources) == ("allocated", "gpus", {"gpu": 2, "step_run": 1})
        assert (request.labels, request.walltime_s, request.preemption_class) == ({"run": "7"}, 60, 3)
        assert request.submitted_at is not None
        assert request.submitted_at >= before
        assert request.fence is not None
        beat = client.heartbeat(request.id, request.fence)
        assert (beat.id, beat.status, beat.directive) == (request.id, "allocated", "continue")
        assert client.request(request.id).lease_expires_at == beat.lease_expires_at
        assert client.release(request.id, request.fence, "failed").outcome == "failed"
        assert [line.event for line in client.timeline(request.id)] == ["submitted", "allocated", "released"]
        with pytest.raises(errors.StaleFence) as caught:
            client.heartbeat(request.id, request.fence)
        assert caught.value.directive == "kill"

    def test_a_story_is_read_to_its_end(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        request = client.submit("team", gpu=2)
        client.release(request.id, request.fence or 0)
        monkeypatch.setattr(client, "items", partial(client.items, page=1))
        assert [line.event for line in client.timeline(request.id)] == ["submitted", "allocated", "released"]

    def test_what_is_not_given_is_the_servers_default_and_none_is_none(self, client: Client) -> None:
        usual, for_ever = client.submit("team", gpu=1), client.submit("team", gpu=1, lease_s=None, queue_ttl_s=None)
        assert (usual.lease_s, usual.queue_ttl_s, usual.preemptible, usual.retries) == (60, 600, True, 3)
        assert (for_ever.lease_s, for_ever.queue_ttl_s) == (None, None)

    def test_amounts_by_name_resources_and_settings_go_together(self, client: Client) -> None:
        request = client.submit("team", resources={"mcpu": 500}, settings={"memory": "2GiB"}, gpu=1)
        assert request.resources == {"gpu": 1, "mcpu": 500, "memory_mb": 2148, "step_run": 1}
        with pytest.raises(TypeError, match="gpu is given twice"):
            client.submit("team", resources={"gpu": 1}, gpu=1)

    def test_the_same_key_is_the_same_request(self, client: Client) -> None:
        first = client.submit("team", gpu=1, idempotency_key="job-7")
        assert client.submit("team", gpu=1, idempotency_key="job-7").id == first.id
        assert client.submit("team", gpu=1).id != first.id
        with pytest.raises(errors.Conflict):
            client.submit("team", gpu=2, idempotency_key="job-7")

    def test_a_lost_answer_makes_no_second_request(self, proxy: FlakyProxy, proxied: Client) -> None:
        proxy.lose_answer_to("POST /api/v1/requests ")
        proxy.lose_answer_to("POST /api/v1/requests/batch ")
        proxied.submit("team", gpu=1)
        proxied.submit_many([request_spec("team", gpu=1), request_spec("team", gpu=2)])
        assert proxy.lost_answers == 2
        assert len(list(proxied.requests())) == 3

    def test_many_at_once_each_for_itself(self, client: Client) -> None:
        first, wrong, second = client.submit_many(
            [request_spec("team", gpu=3), {"component": "team", "gpu": 1}, request_spec("team", gpu=9)]
        )
        assert isinstance(first, Request)
        assert isinstance(second, Request)
        assert (first.status, second.status) == ("allocated", "rejected")
        assert isinstance(wrong, errors.BadRequest)
        assert wrong.errors[0]["field"] == "gpu"

    def test_more_than_a_batch(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("poolkeeper.client.BATCH_SIZE", 3)
        asks = [request_spec("team", gpu=8, labels={"n": str(n)}) for n in range(7)]
        answers = client.submit_many(asks, idempotency_key="sweep")
        assert [answer.labels["n"] for answer in answers if isinstance(answer, Request)] == [str(n) for n in range(7)]
        again = client.submit_many(asks, idempotency_key="sweep")
        assert [answer.id for answer in again if isinstance(answer, Request)] == [
            answer.id for answer in answers if isinstance(answer, Request)
        ]

    def test_lists_narrow(self, client: Client) -> None:
        first, waits = client.submit("team", gpu=8), client.submit("team", gpu=8, labels={"run": "7"})
        assert [request.id for request in client.requests()] == [waits.id, first.id]
        assert [request.id for request in client.requests(status="allocated")] == [first.id]
        assert [request.id for request in client.requests(status=["queued", "rejected"])] == [waits.id]
        assert [request.id for request in client.requests(labels={"run": "7"})] == [waits.id]
        assert list(client.requests(component="other")) == []

    def test_leaving_the_queue(self, client: Client) -> None:
        request, waits = client.submit("team", gpu=8), client.submit("team", gpu=8)
        assert client.cancel(waits.id).status == "cancelled"
        assert client.cancel(waits.id).status == "cancelled"
        with pytest.raises(errors.Conflict) as caught:
            client.cancel(request.id)
        assert caught.value.code == "not_queued"
        dropped = client.drop(request.id)
        assert (dropped.status, dropped.reason and dropped.reason.code) == ("released", "dropped")

    def test_a_lost_answer_to_a_cancel_is_no_matter(self, proxy: FlakyProxy, proxied: Client) -> None:
        proxied.submit("team", gpu=8)
        waits = proxied.submit("team", gpu=8)
        proxy.lose_answer_to(f"POST /api/v1/requests/{waits.id}/cancel ")
        assert proxied.cancel(waits.id).status == "cancelled"
        assert proxy.lost_answers == 1

    @pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "ü?x=1", "%2e"])
    def test_what_can_be_no_id_is_not_there(self, client: Client, name: str) -> None:
        with pytest.raises((errors.NotFound, errors.BadRequest)):
            client.request(name)


class TestPools:
    def test_create_change_look_delete(self, client: Client) -> None:
        made = client.create_pool("cpus", {"mcpu": 8000}, description="all of them", settings={"queueing": "strict"})
        assert (made.name, made.capacity, made.free) == ("cpus", {"mcpu": 8000}, {"mcpu": 8000})
        assert (made.description, made.settings["queueing"]) == ("all of them", "strict")
        with pytest.raises(errors.Conflict) as caught:
            client.create_pool("cpus", {"mcpu": 8000})
        assert caught.value.code == "pool_exists"
        assert client.update_pool("cpus", capacity={"slot": 4}).capacity == {"mcpu": 8000, "slot": 4}
        assert client.update_pool("cpus", description="").description == ""
        assert [pool.name for pool in client.pools()] == ["cpus", "gpus"]
        client.delete_pool("cpus")
        with pytest.raises(errors.NotFound):
            client.pool("cpus")
        with pytest.raises(errors.NotFound):
            client.delete_pool("cpus")

    def test_lost_answers_are_no_matter(self, proxy: FlakyProxy, proxied: Client) -> None:
        proxy.lose_answer_to("POST /api/v1/pools ")
        proxy.lose_answer_to("DELETE /api/v1/pools/cpus ", times=2)
        assert proxied.create_pool("cpus", {"mcpu": 8000}).name == "cpus"
        proxied.delete_pool("cpus")
        assert (proxy.lost_answers, [pool.name for pool in proxied.pools()]) == (3, ["gpus"])

    def test_policies_and_groups(self, client: Client) -> None:
        group = client.set_group("gpus", "lab", reserved={"gpu": 2}, weight=3)
        assert (group.pool, group.name, group.reserved, group.weight) == ("gpus", "lab", {"gpu": 2}, 3)
        made = client.set_policy("gpus", "step", component_type="step_operator", priority=5, limit={"gpu": 6}, group="lab")
        assert (made.pool, made.component, made.component_type) == ("gpus", "step", "step_operator")
        assert (made.priority, made.limit, made.group) == (5, {"gpu": 6}, "lab")
        assert client.policy("gpus", "step", "step_operator") == made
        assert client.component_policies("step", "step_operator") == [made]
        assert {policy.component for policy in client.policies("gpus")} == {"step", "team"}
        assert client.groups("gpus") == [group]
        assert (made.settings, group.mode, group.settings) == ({}, "fair_share", {})
        client.delete_policy("gpus", "step", "step_operator")
        client.delete_group("gpus", "lab")
        assert ([policy.component for policy in client.policies("gpus")], client.groups("gpus")) == (["team"], [])

    def test_settings_of_their_own(self, client: Client) -> None:
        group = client.set_group("gpus", "lab", mode="fifo", settings={"fair_share_tolerance": 0.5})
        assert (group.mode, group.settings) == ("fifo", {"fair_share_tolerance": 0.5})
        own = {"non_preemptible_usage_threshold": {"gpu": 2}, "aggressive_starvation": False}
        assert client.set_policy("gpus", "team", settings=own).settings == own
        assert client.set_policy("gpus", "team", weight=2).settings == {}
        with pytest.raises(errors.BadRequest):
            client.set_policy("gpus", "team", settings={"preemption_threshold": True})

    def test_what_is_in_use_stays(self, client: Client) -> None:
        client.submit("team", gpu=1)
        with pytest.raises(errors.Conflict):
            client.delete_pool("gpus")
        with pytest.raises(errors.Conflict):
            client.delete_policy("gpus", "team")


class TestWorkspace:
    def test_the_identity_of_a_token(self, client: Client) -> None:
        caller = client.whoami()
        assert (caller.name, caller.roles, caller.workspace) == ("anonymous", ("admin",), client.workspace)

    def test_a_declaration_is_read_planned_and_applied(self, client: Client) -> None:
        declaration = client.declaration()
        assert [pool["name"] for pool in declaration["pools"]] == ["gpus"]
        assert client.plan(declaration).changes == ()
        declaration["pools"][0]["capacity"] = {"gpu": 9}
        planned = client.plan(declaration)
        [change] = planned.changes
        assert isinstance(change, Change)
        assert (change.action, change.kind, change.pool) == ("update", "pool", "gpus")
        assert client.apply(declaration) == planned
        assert client.pool("gpus").capacity == {"gpu": 9}

    def test_workspaces_are_apart(self, api: Api, client: Client) -> None:
        assert Client(api.url, workspace=f"{client.workspace}-other").pools() == []
