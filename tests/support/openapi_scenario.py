"""A day of a small lab, by which every operation of the API is called and every conflict comes up once.

`vision` owns four of eight GPUs, `research` borrows. The order of the calls is the order of the story.
"""

from __future__ import annotations

from typing import Any

from tests.support.openapi_examples import JSON, ExampleRecorder

GPUS, VISION, RESEARCH = {"pool": "gpus"}, {"pool": "gpus", "component": "vision"}, {"pool": "gpus", "component": "research"}


def play(api: ExampleRecorder) -> None:
    """Call every operation of the API."""
    make_pools(api)
    requests = submit_requests(api)
    read(api, requests)
    hold_and_release(api, requests)
    park_tasks(api)
    change_pools(api)
    declare(api)
    api.call("get_liveness", expect=200)
    api.call("get_readiness", expect=200)
    api.call("get_metrics", expect=200)
    api.call("whoami", expect=200)


def make_pools(api: ExampleRecorder) -> None:
    """Make the pool of GPUs with its group and policies."""
    pool = {"name": "gpus", "description": "the shared GPUs", "capacity": {"gpu": 8}, "settings": {"grace_s": 60}}
    api.call("create_pool", pool, expect=201)
    api.call("create_pool", pool, expect=409)
    threshold = {"non_preemptible_usage_threshold": {"tpu": 1}}
    api.call("create_pool", {"name": "tpus", "capacity": {"gpu": 1}, "settings": threshold}, expect=422)
    api.call("create_pool", {"name": "seats", "capacity": {"matlab": 2}}, expect=201)

    lab = GPUS | {"group": "lab"}
    api.call("put_group", {"limit": {"gpu": 6}}, path=lab, expect=201)
    api.call("put_group", {"limit": {"gpu": 6}, "weight": 2}, path=lab, expect=200)
    api.call("put_group", {"limit": {"gpu": 9}}, path=lab, expect=422)
    api.call("put_group", {}, path=GPUS | {"group": "spare"}, expect=201)
    api.call("get_group", path=lab, expect=200)
    api.call("get_group", path=GPUS | {"group": "nowhere"}, expect=404)
    api.call("list_groups", path=GPUS, expect=200)

    api.call("put_policy", {"priority": 10, "reserved": {"gpu": 4}}, path=VISION, expect=201)
    api.call("put_policy", {"priority": 20, "reserved": {"gpu": 4}}, path=VISION, expect=200)
    api.call("put_policy", {"limit": {"tpu": 1}}, path=VISION, expect=422)
    api.call("put_policy", {"group": "lab"}, path=RESEARCH, expect=201)
    api.call("put_policy", {}, path=GPUS | {"component": "trial"}, expect=201)
    api.call("get_policy", path=VISION, expect=200)
    api.call("get_policy", path=GPUS | {"component": "absent"}, expect=404)
    api.call("list_policies", path=GPUS, expect=200)
    api.call("list_component_policies", path={"component": "vision"}, expect=200)


def submit_requests(api: ExampleRecorder) -> dict[str, Any]:
    """Submit requests: two of `research` that are allocated, one of `vision` that is, one that waits."""
    training = {"component": "research", "resources": {"gpu": 4}, "labels": {"user": "ana"}, "retries": 5}
    key = {"Idempotency-Key": "nightly-42"}
    requests = {"first": api.call("submit_request", training, headers=key, expect=201)}
    api.call("submit_request", training | {"retries": 1}, headers=key, expect=409)
    batch = [{"component": "research", "resources": {"gpu": 2}}, {"component": "vision", "resources": {"gpu": 40}}]
    requests["second"] = api.call("submit_batch", {"requests": batch}, expect=201)["items"][0]
    requests["owner"] = api.call("submit_request", {"component": "vision", "resources": {"gpu": 2}}, expect=201)
    requests["waits"] = api.call("submit_request", {"component": "vision", "resources": {"gpu": 2}}, expect=201)
    ours = api.site.token("requester", "vision", name="ci")
    api.call("submit_request", training, token=ours, expect=403)
    api.call("get_request", path={"request": requests["first"]["id"]}, token=ours, expect=403)
    limits = {"component_limits": {"orchestrator/trial": {"max_waiting": 1}}}
    api.call("update_workspace", limits, expect=200)
    trial = api.call("submit_request", {"component": "trial", "resources": {"gpu": 8}}, expect=201)
    api.call("submit_request", {"component": "trial", "resources": {"gpu": 8}}, expect=429)
    api.call("cancel_request", {}, path={"request": trial["id"]}, expect=200)
    api.call("put_policy", {}, path=RESEARCH, expect=409)
    api.call("put_group", {"parent": "spare", "limit": {"gpu": 6}}, path=GPUS | {"group": "lab"}, expect=409)
    return requests


def read(api: ExampleRecorder, requests: dict[str, Any]) -> None:
    """Read lists, reasons and estimates, and try things out."""
    waits = {"request": requests["waits"]["id"]}
    api.site.services.usage_history.record("default")
    api.call("get_request", path=waits, expect=200)
    api.call("list_requests", limit=2, expect=200)
    api.call("list_request_events", path={"request": requests["first"]["id"]}, expect=200)
    api.call("explain_request", path=waits, expect=200)
    api.call("get_estimate", path=waits, expect=200)
    api.call("list_pools", limit=1, expect=200)
    api.call("get_pool", path=GPUS, expect=200)
    api.call("list_pool_requests", path=GPUS, expect=200)
    api.call("get_pool_shares", path=GPUS, expect=200)
    api.call("get_usage_history", path=GPUS, expect=200)
    api.call("list_events", limit=2, headers=JSON, expect=200)
    api.stream_events(after="0", count=2)

    api.call("dry_run", {"request": {"component": "vision", "resources": {"gpu": 2}}}, expect=200)
    api.call("dry_run", {"pool": {"name": "tpus", "capacity": {"tpu": 1}}}, expect=404)
    api.call("dry_run", {"pool": {"name": "gpus", "capacity": {"gpu": 3}}}, expect=409)
    api.call("dry_run", {"policy": {"pool": "gpus", "component": "vision", "limit": {"tpu": 1}}}, expect=422)


def hold_and_release(api: ExampleRecorder, requests: dict[str, Any]) -> None:
    """Begin what was granted, say that it is alive, save its work and give its units back."""
    first, owner, waits = ({"request": requests[name]["id"]} for name in ("first", "owner", "waits"))
    fence = requests["first"]["fence"]
    api.call("start_request", {"fence": fence, "runner": "gpu-01:4711:c3f1"}, path=first, expect=200)
    api.call("start_request", {"fence": fence, "runner": "gpu-02:815:9a0e"}, path=first, expect=409)
    api.call("send_heartbeat", {"fence": fence}, path=first, expect=200)
    saved = {"fence": fence, "state": "completed", "reference": "s3://models/step-900", "routine": True}
    api.call("report_checkpoint", saved, path=first, expect=200)
    api.call("cancel_request", {}, path=waits, expect=200)
    api.call("cancel_request", {}, path=owner, expect=409)
    api.call("release_request", {"fence": fence, "outcome": "succeeded"}, path=first, expect=200)
    api.call("release_request", {"fence": 99}, path=first, expect=409)
    api.call("send_heartbeat", {"fence": fence}, path=first, expect=409)
    api.call("report_checkpoint", saved, path=first, expect=409)
    api.call("drop_request", path=owner, expect=200)


def park_tasks(api: ExampleRecorder) -> None:
    """Park a task that waits, one that has an allocation, and see both to their end."""
    message = {"body": "W1tdLCB7fSwge31d", "headers": {"task": "proj.train"}}
    request = {"component": "vision", "resources": {"gpu": 4}}
    task = {"task": "5d3ae1", "name": "proj.train", "request": request, "message": message}
    api.call("park_task", task, expect=201)
    api.call("park_task", task | {"name": "proj.test"}, expect=409)
    api.call("park_task", task, headers={"Poolkeeper-Workspace": "lab"}, expect=422)
    waits = {"task": "77b0f2"}
    parked = api.call("park_task", task | waits | {"request": request | {"resources": {"gpu": 6}}}, expect=201)
    api.call("get_task", path=waits, expect=200)
    heard = {"request": parked["request"]["id"]}
    api.call("acknowledge_task_end", heard, path=waits, expect=409)
    api.call("cancel_task", {}, path=waits, expect=200)
    api.call("acknowledge_task_end", heard, path=waits, expect=204)
    started = api.call("get_task", path={"task": "5d3ae1"}, expect=200)["request"]
    runner = {"fence": started["fence"], "runner": "gpu-01:4711:c3f1"}
    api.call("start_request", runner, path={"request": started["id"]}, expect=200)
    api.call("cancel_task", {}, path={"task": "5d3ae1"}, expect=409)


def change_pools(api: ExampleRecorder) -> None:
    """Change pools, and delete what is not in use."""
    seats = {"pool": "seats"}
    api.call("update_pool", {"capacity": {"matlab": 3}}, path=seats, expect=200)
    api.call("update_pool", {"capacity": {"gpu": 3}}, path=GPUS, expect=409)
    api.call("update_pool", {"capacity": {"matlab": 0}}, path=seats, expect=422)
    api.call("delete_pool", path=GPUS, expect=409)
    api.call("delete_policy", path=RESEARCH, expect=409)
    api.call("delete_group", path=GPUS | {"group": "lab"}, expect=409)
    api.call("delete_policy", path=GPUS | {"component": "trial"}, expect=204)
    api.call("delete_group", path=GPUS | {"group": "spare"}, expect=204)
    api.call("delete_pool", path=seats, expect=204)


def declare(api: ExampleRecorder) -> None:
    """Export the declaration, plan a change of it, and apply it."""
    gpus = {"name": "gpus", "capacity": {"gpu": 16}}
    policies = [{"component": "vision", "priority": 20, "reserved": {"gpu": 6}}, {"component": "research", "group": "lab"}]
    wanted = {"pools": [gpus | {"groups": [{"name": "lab", "limit": {"gpu": 10}}], "policies": policies}]}
    api.call("export_declaration", expect=200)
    for operation in ("plan_declaration", "apply_declaration"):
        api.call(operation, {"pools": [gpus | {"policies": policies}]}, expect=422)
        api.call(operation, {"pools": [gpus | {"policies": [{"component": "vision", "limit": {"tpu": 1}}]}]}, expect=422)
    api.call("apply_declaration", {"pools": [gpus | {"policies": policies[:1]}]}, expect=409)
    api.call("plan_declaration", wanted, expect=200)
    api.call("apply_declaration", wanted, expect=200)
    api.call("get_workspace", expect=200)
