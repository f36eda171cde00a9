"""The requests of `examples/airflow`, without Airflow, and the imports of the part that needs it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import replace
from typing import Any

import pytest
from poolkeeper import Client, errors
from poolkeeper.models import Request

from tests.support.backends import wait_until
from tests.support.client_api import Api
from tests.support.paths import ROOT
from tests.support.stub_server import StubServer, refuse

FOLDER = ROOT / "examples" / "airflow"


def load_module() -> Any:
    """Return the module of the example, which is in no package."""
    spec = importlib.util.spec_from_file_location("poolkeeper_requests", FOLDER / "poolkeeper_requests.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for it
    spec.loader.exec_module(module)
    return module


requests = load_module()
FIRST, SECOND = (requests.TaskTry("dag", "run", "wait", f"019a{number}") for number in (1, 2))


def submit(client: Client, task_try: Any = FIRST, gpu: int = 2, **options: Any) -> str:
    """Submit the request of a try and return its id."""
    return str(requests.submit(client, task_try, "team", {"gpu": gpu}, **options))


def grant_of(client: Client) -> dict[str, Any]:
    """Return the grant of a new request."""
    grant: dict[str, Any] = requests.poll(client, submit(client))
    return grant


def test_a_try_submits_once(client: Client) -> None:
    first = submit(client)
    assert submit(client) == first
    assert submit(client, requests.TaskTry("dag", "run", "wait", "019a3", map_index=0)) != first
    request = client.request(first)
    assert (request.name, request.lease_s, request.queue_ttl_s, request.retries) == ("dag/wait", 900, 300, 0)


def test_the_poll_of_a_granted_request_returns_the_grant(client: Client) -> None:
    request_id = submit(client)
    grant = requests.poll(client, request_id)
    assert grant == {
        "request": request_id,
        "fence": 1,
        "pool": "gpus",
        "resources": {"gpu": 2, "step_run": 1},
        "lease_s": 900,
    }


def test_a_queued_request_has_no_grant_yet(client: Client) -> None:
    holder = client.submit("team", gpu=8)
    request_id = submit(client)
    assert requests.poll(client, request_id) is None
    client.release(holder.id, holder.fence or 0)
    assert requests.poll(client, request_id)["request"] == request_id


def test_a_rejected_request_raises_with_its_reason(client: Client) -> None:
    with pytest.raises(requests.GrantError, match="is rejected: gpus: asks 9 of gpu; the pool has 8"):
        requests.poll(client, submit(client, gpu=9))


def test_the_next_try_cancels_the_queued_request_of_the_first(client: Client) -> None:
    client.submit("team", gpu=8)
    first, second = submit(client), submit(client, SECOND)
    assert (client.request(first).status, client.request(second).status) == ("cancelled", "queued")


def test_the_next_try_releases_the_units_of_the_first(client: Client) -> None:
    first, second = submit(client, gpu=8), submit(client, SECOND, gpu=8)
    assert (client.request(first).status, client.request(second).status) == ("released", "allocated")


def test_a_run_that_was_deleted_and_made_again_gets_a_request_of_its_own(client: Client) -> None:
    first = submit(client)
    requests.release(client, requests.poll(client, first))
    assert client.request(submit(client, SECOND)).status == "allocated"


def test_an_earlier_try_that_comes_late_does_not_end_the_request_of_a_later_one(client: Client) -> None:
    later = submit(client, SECOND)
    submit(client, FIRST)
    requests.give_up(FIRST, client)
    assert client.request(later).status == "allocated"


def test_a_request_that_has_expired_may_be_tried_again_and_a_cancelled_one_not(client: Client, api: Api) -> None:
    client.submit("team", gpu=8)
    for task_try, end, may_retry in ((FIRST, client.cancel, False), (SECOND, lambda _: api.lapse(client.workspace), True)):
        request_id = submit(client, task_try, queue_ttl_s=1)
        end(request_id)
        with pytest.raises(requests.GrantError) as caught:
            requests.poll(client, request_id)
        assert caught.value.may_retry is may_retry


def test_a_try_that_fails_keeps_its_own_error_if_the_service_does_not_answer(stub: StubServer) -> None:
    stub.script(refuse(503, "busy", "later"))
    with Client(stub.url, tries=1) as client:
        assert requests.give_up(FIRST, client) == []


def test_a_killed_task_ends_its_own_request_and_no_other(client: Client) -> None:
    other = submit(client, requests.TaskTry("dag", "other run", "wait", "019a0"))
    own = submit(client)
    assert requests.end_requests(client, FIRST) == [own]
    assert requests.end_requests(client, FIRST) == []
    assert (client.request(own).status, client.request(other).status) == ("released", "allocated")


def test_a_request_that_is_granted_while_it_is_cancelled_is_released(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = client.submit("team", gpu=8)
    own, cancel = submit(client), client.cancel

    def grant_and_cancel(request_id: str) -> Any:
        """Let the grant arrive just before the cancellation."""
        client.release(holder.id, holder.fence or 0)
        return cancel(request_id)

    monkeypatch.setattr(client, "cancel", grant_and_cancel)
    assert requests.end_requests(client, FIRST) == [own]
    assert client.request(own).status == "released"


def test_a_request_that_returns_to_the_queue_before_its_release_is_cancelled(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit("team", gpu=8)
    own = client.request(submit(client))
    monkeypatch.setattr(client, "requests", lambda **_: [replace(own, status="preempting", fence=1)])
    assert requests.end_requests(client, FIRST) == [own.id]
    assert client.request(own.id).status == "cancelled"


def test_a_request_that_is_deleted_before_its_cancellation_is_passed_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Request("gone", "queued", labels={requests.TRY_LABEL: "019a0"})
    monkeypatch.setattr(client, "requests", lambda **_: [gone])
    assert requests.end_requests(client, FIRST) == []


def test_a_release_may_be_repeated(client: Client) -> None:
    grant = grant_of(client)
    assert [requests.release(client, grant) for _ in range(2)] == [True, True]
    assert client.request(grant["request"]).status == "released"


def test_the_release_of_lost_units_is_no_error(client: Client, api: Api) -> None:
    grant = grant_of(client)
    api.lapse(client.workspace)
    assert not requests.release(client, grant)


def test_work_without_its_units_does_not_begin(client: Client, api: Api) -> None:
    grant = grant_of(client)
    api.lapse(client.workspace)
    with pytest.raises(requests.GrantError, match="are lost"), requests.holding(grant, client):
        pytest.fail("the block must not run")


def test_units_that_are_lost_during_the_work_raise_at_its_end(client: Client, api: Api) -> None:
    def work() -> None:
        """Work until a heartbeat has reported the loss."""
        with requests.holding(grant_of(client), client) as heartbeats:
            api.lapse(client.workspace)
            wait_until(lambda: heartbeats.loss_reason, "the units are lost")

    with pytest.raises(requests.GrantError, match="were lost"):
        work()


def test_an_error_of_the_work_passes(client: Client) -> None:
    grant = grant_of(client)
    with pytest.raises(RuntimeError, match="of the work"), requests.holding(grant, client):
        raise RuntimeError("of the work")
    assert client.request(grant["request"]).status == "allocated"


@pytest.mark.parametrize("status", [503, 429])
def test_a_service_that_does_not_answer_counts_as_a_wait(stub: StubServer, status: int) -> None:
    stub.script(refuse(status, "busy", "later"))
    with Client(stub.url, tries=1) as client:
        assert requests.poll(client, "r") is None


def test_a_refused_poll_raises(stub: StubServer) -> None:
    stub.script(refuse(403, "forbidden", "no"))
    with Client(stub.url, tries=1) as client, pytest.raises(errors.AccessDenied):
        requests.poll(client, "r")


def test_labels_are_short_and_differ() -> None:
    labels = {requests.TaskTry("d" * 250, "run", "wait", "019a1", index).task for index in (-1, 0, 1)}
    assert len(labels) == 3
    assert max(map(len, labels)) <= 200


def test_only_the_sensor_and_the_dag_import_airflow() -> None:
    imports = {
        path.name: any(
            (getattr(node, "module", None) or "").split(".")[0] == "airflow" for node in ast.walk(ast.parse(path.read_text()))
        )
        for path in FOLDER.glob("*.py")
    }
    assert imports == {"poolkeeper_requests.py": False, "poolkeeper_sensor.py": True, "train_dag.py": True}


def test_the_guide_shows_the_dag() -> None:
    assert f"```python\n{(FOLDER / 'train_dag.py').read_text()}```" in (ROOT / "docs/guides/airflow.md").read_text()
