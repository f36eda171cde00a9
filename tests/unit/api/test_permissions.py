"""The permissions: every route is called by every kind of caller, and each sees its part of the lists and streams.

The expected permissions follow the description of the roles. An admin may call everything. An operator acts on the requests of
all components, reads, resizes pools and edits policies. A requester reads, and submits and acts for its own components.
A viewer reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from app.api.routes import AT_ROOT, ROUTES
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Said, Site, a_task, an_ask
from tests.support.recorded_world import Recording
from tests.support.world import World

READERS = "admin operator owner stranger viewer"
SHAPERS = "admin"
ADJUSTERS = "admin operator"
SUBMITTERS = "admin operator owner"
BATCHERS = "admin operator owner stranger"  # each ask is judged in its place, see below
ACTORS = "admin operator owner"
LOOKERS = "admin operator owner viewer"
DROPPERS = "admin operator"
EVERY_CALLER = "every caller, with or without a token"

POOL = {"name": "new", "capacity": {"gpu": 1}}
DECLARATION = {"pools": [POOL]}

PERMISSIONS: dict[str, tuple[str, Any]] = {  # route: roles, and a body with which it succeeds
    "POST /pools": (SHAPERS, POOL),
    "GET /pools": (READERS, None),
    "GET /pools/{pool}": (READERS, None),
    "PATCH /pools/{pool}": (ADJUSTERS, {"capacity": {"gpu": 9}}),
    "DELETE /pools/{pool}": (SHAPERS, None),
    "GET /pools/{pool}/requests": (READERS, None),
    "GET /pools/{pool}/shares": (READERS, None),
    "GET /pools/{pool}/history": (READERS, None),
    "GET /pools/{pool}/policies": (READERS, None),
    "PUT /pools/{pool}/policies/{component}": (ADJUSTERS, {}),
    "GET /pools/{pool}/policies/{component}": (READERS, None),
    "DELETE /pools/{pool}/policies/{component}": (SHAPERS, None),
    "GET /pools/{pool}/groups": (READERS, None),
    "PUT /pools/{pool}/groups/{group}": (SHAPERS, {}),
    "GET /pools/{pool}/groups/{group}": (READERS, None),
    "DELETE /pools/{pool}/groups/{group}": (SHAPERS, None),
    "GET /components/{component}/policies": (READERS, None),
    "POST /requests": (SUBMITTERS, an_ask()),
    "POST /requests/batch": (BATCHERS, {"requests": [an_ask()]}),
    "GET /requests": (READERS, None),
    "GET /requests/{request}": (LOOKERS, None),
    "DELETE /requests/{request}": (DROPPERS, None),
    "POST /requests/{request}/heartbeat": (ACTORS, {"fence": 1}),
    "POST /requests/{request}/release": (ACTORS, {"fence": 1}),
    "POST /requests/{request}/checkpoint": (ACTORS, {"fence": 1, "state": "progress"}),
    "POST /requests/{request}/cancel": (ACTORS, {}),
    "GET /requests/{request}/events": (LOOKERS, None),
    "GET /requests/{request}/explain": (LOOKERS, None),
    "GET /requests/{request}/estimate": (LOOKERS, None),
    "POST /dry-run": (LOOKERS, {"request": an_ask()}),
    "POST /tasks": (SUBMITTERS, a_task("new")),
    "GET /tasks/{task}": (LOOKERS, None),
    "POST /tasks/{task}/cancel": (ACTORS, {}),
    "POST /tasks/{task}/heard": (ACTORS, {}),
    "POST /requests/{request}/start": (ACTORS, {"fence": 2, "runner": "w"}),
    "GET /events": (READERS, None),
    "GET /workspace": (READERS, None),
    "PATCH /workspace": (SHAPERS, {"unmanaged": "allow"}),
    "GET /whoami": (READERS, None),
    "GET /declaration": (READERS, None),
    "POST /declaration/plan": (READERS, DECLARATION),
    "PUT /declaration": (SHAPERS, DECLARATION),
    "GET /healthz": (EVERY_CALLER, None),
    "GET /readyz": (EVERY_CALLER, None),
    "GET /metrics": (READERS + " elsewhere", None),
}
ROLES = ("admin", "operator", "owner", "stranger", "viewer")
OUTSIDERS = {  # callers that every route refuses, with the status and code
    "anonymous": (401, "no_token"),
    "unknown": (401, "unknown_token"),
    "revoked": (401, "unknown_token"),
    "elsewhere": (403, "other_workspace"),
}
CALLERS = (*ROLES, *OUTSIDERS)
UNKNOWN = "pk_" + "A" * 43
Secrets: TypeAlias = dict[str, str | None]
"""Caller → its token; None without one."""


def _secrets(site: Site) -> Secrets:
    """Return the secret of each caller."""
    roles = {role: site.token(role, workspaces=["default"]) for role in ("admin", "operator", "viewer")}
    requesters = {
        name: site.token("requester", component, workspaces=["default"])
        for name, component in (("owner", "team"), ("stranger", "other"))
    }
    elsewhere, revoked = site.token(workspaces=["elsewhere", "other"]), site.token(name="revoked")
    site.services.tokens.revoke("revoked")
    return {**roles, **requesters, "anonymous": None, "unknown": UNKNOWN, "revoked": revoked, "elsewhere": elsewhere}


def _fill(site: Site) -> dict[str, str]:
    """Create objects with which every route can succeed, and return the ids of the requests by their state."""
    site.pool()
    site.policy()
    allocation = site.submit(gpu=7)["id"]
    granted = site.park("granted")["request"]["id"]
    waiting = site.submit()["id"]
    site.park("parked")
    site.park("over", not_before="2030-01-01T00:00:00Z")
    site.post("/tasks/over/cancel")
    site.put("/pools/gpus/groups/lab", {})
    site.policy("idle")
    site.pool("idle")
    return {"allocation": allocation, "granted": granted, "waiting": waiting}


def _path(route: str, requests: dict[str, str]) -> str:
    """Return the path of a route, with names of objects with which it can succeed."""
    state = "waiting" if route.endswith("cancel") else "granted" if route.endswith("start") else "allocation"
    names = {
        "pool": "idle" if route == "DELETE /pools/{pool}" else "gpus",
        "component": "idle" if route.startswith("DELETE /pools") else "team",
        "group": "lab",
        "request": requests[state],
        "task": "over" if route.endswith("heard") else "parked",
    }
    return route.partition(" ")[2].format(**names)


@dataclass(frozen=True)
class FilledWorkspace:
    """A workspace to be restored, with objects with which every route can succeed, and the tokens of its callers."""

    recording: Recording[dict[str, str]]
    secrets: Secrets

    def site(self) -> Site:
        """Return the API on a restored workspace."""
        site = Site(new_fake())
        self.recording.restore(World(site.client))
        return site

    def call(self, site: Site, route: str, caller: str) -> Said:
        """Call a route with the body that `PERMISSIONS` has for it."""
        path, body, secret = _path(route, self.recording.result), PERMISSIONS[route][1], self.secrets[caller]
        at_root = path in ("/healthz", "/readyz", "/metrics")
        headers = {"Accept": "application/json"}
        return site.ask(route.partition(" ")[0], path, body, token=secret, root=at_root, headers=headers)


@pytest.fixture(scope="module")
def workspace() -> FilledWorkspace:
    """Return the workspace on which every route is tried."""
    site = Site(new_fake())
    requests, secrets = _fill(site), _secrets(site)
    return FilledWorkspace(Recording.of(World(site.client), requests), secrets)


def test_the_table_has_every_route() -> None:
    assert sorted(PERMISSIONS) == sorted(route.name for route in (*ROUTES, *AT_ROOT))


@pytest.mark.parametrize("route", PERMISSIONS)
def test_a_caller_without_the_permission_is_refused_and_changes_nothing(workspace: FilledWorkspace, route: str) -> None:
    site, permitted = workspace.site(), PERMISSIONS[route][0]
    before = site.state()
    for caller in CALLERS:
        if permitted == EVERY_CALLER or caller in permitted.split():
            continue
        answer = workspace.call(site, route, caller)
        if caller in OUTSIDERS:
            answer.refused(*OUTSIDERS[caller])
        else:
            own_only = caller == "stranger" and "owner" in permitted.split()
            answer.refused(403, "other_component" if own_only else "not_permitted")
        if answer.status == 401:
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="poolkeeper"'
    assert site.state() == before, "a refused call changes nothing"


@pytest.mark.parametrize("route", PERMISSIONS)
def test_a_caller_with_the_permission_is_served(workspace: FilledWorkspace, route: str) -> None:
    permitted, site = PERMISSIONS[route][0], workspace.site()
    for number, caller in enumerate(CALLERS if permitted == EVERY_CALLER else permitted.split()):
        if number and not route.startswith("GET"):
            site = workspace.site()  # as it was before the last call
        answer = workspace.call(site, route, caller)
        assert answer.status in (200, 201, 204), (caller, answer)


def test_a_batch_for_others_is_refused_ask_by_ask(site: Site) -> None:
    _fill(site)
    secret = site.token("requester", "other")
    asks = [an_ask(), an_ask("other"), an_ask("step_operator/other")]
    mine = site.post("/requests/batch", {"requests": asks}, token=secret)
    assert [item["status"] for item in mine.items] == [403, "rejected", 403]
    assert [item.get("code") for item in mine.items] == ["other_component", None, "other_component"]


# ---- with and without tokens


def test_without_tokens_every_local_caller_may_do_everything(site: Site) -> None:
    site.pool()
    assert site.get("/whoami").body == {
        "name": "anonymous",
        "roles": ["admin"],
        "sensitive": False,
        "workspaces": ["*"],
        "components": [],
        "workspace": "default",
        "permissions": ["act", "adjust", "drop", "read", "sensitive", "shape", "submit"],
        "token_needed": False,
    }


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True),
        ("LocalHost:8080", True),
        ("127.0.0.1", True),
        ("127.0.0.1:8080", True),
        ("127.8.8.8", True),
        ("[::1]", True),
        ("[::1]:80", True),
        ("[::1]:8080", True),
        ("poolkeeper.example", False),
        ("poolkeeper.example:8080", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("[::2]:8080", False),
        ("[::ffff:10.0.0.1]", False),
        ("localhost@poolkeeper.example", False),
        ("local host", False),
        ("", False),
    ],
)
def test_without_tokens_only_loopback_host_names_are_served(site: Site, host: str, served: bool) -> None:
    answer = site.get("/pools", headers={"Host": host})
    if served:
        assert answer.status == 200
    else:
        answer.refused(403, "foreign_host")
    assert site.get("/pools", token=site.token(), headers={"Host": host}).status == 200, "a token is proof enough"


@pytest.mark.parametrize(
    ("origin", "served"),
    [
        ("http://localhost", True),
        ("http://localhost:8080", False),
        ("http://127.0.0.1", False),
        ("https://[::1]:8443", False),
        ("http://poolkeeper.example", False),
        ("http://localhost.example:8080", False),
        ("null", False),
        ("", False),
    ],
)
def test_without_tokens_no_page_of_elsewhere_is_served(site: Site, origin: str, served: bool) -> None:
    allocation = site.submit()["id"]
    for method, path in (("GET", "/pools"), ("POST", f"/requests/{allocation}/cancel")):
        answer = site.ask(method, path, headers={"Origin": origin})
        if not served:
            answer.refused(403, "foreign_host")
        else:
            assert answer.status in (200, 409)
    assert site.get("/pools", token=site.token(), headers={"Origin": origin}).status == 200, "a token is proof enough"


def test_once_there_is_a_token_every_call_needs_one(site: Site) -> None:
    assert site.get("/pools").status == 200
    secret = site.token(name="only")
    site.get("/pools").refused(401, "no_token")
    site.get("/metrics", root=True).refused(401, "no_token")
    assert site.get("/whoami", token=secret).body["token_needed"] is True
    site.services.tokens.revoke("only")
    assert site.get("/pools").status == 200, "as before, once there is none"


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic dTpw", "Token x", "bearer\t"])
def test_what_is_no_bearer(site: Site, value: str) -> None:
    site.token()
    site.get("/pools", headers={"Authorization": value}).refused(401, "no_token")


@pytest.mark.parametrize("secret", ["x", "pk_short", UNKNOWN + "A", "pk_" + "é" * 43, "pk_" + "A" * 42 + " "])
def test_what_is_no_token_is_refused_even_while_none_is_needed(site: Site, secret: str) -> None:
    headers = {"Authorization": f"Bearer {secret}".encode().decode("latin-1")}
    site.get("/pools", headers=headers).refused(401, "unknown_token")
    site.token()
    site.get("/pools", headers=headers).refused(401, "unknown_token")


def test_the_scheme_may_be_written_in_any_case(site: Site) -> None:
    secret = site.token()
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert site.get("/pools", headers={"Authorization": f"{scheme} {secret}"}).status == 200


def test_an_expired_token_is_no_token(site: Site) -> None:
    secret = site.token(expires_s=10)
    site.clock.advance(11)
    site.get("/pools", token=secret).refused(401, "unknown_token")
    site.get("/pools").refused(401, "no_token")


def test_an_operator_adjusts_what_is_there_and_shapes_nothing(site: Site) -> None:
    site.pool(gpu=8)
    site.policy(limit={"gpu": 4})
    secret = site.token("operator")
    before = site.state()
    strict = {"settings": {"queueing": "strict"}}
    for body in ({"description": "mine"}, strict, {"capacity": {"gpu": 9}, "description": "mine"}):
        site.patch("/pools/gpus", body, token=secret).refused(403, "not_permitted")
    site.put("/pools/gpus/policies/newcomer", {}, token=secret).refused(403, "not_permitted")
    site.put("/pools/gpus/policies/team?component_type=step", {}, token=secret).refused(403, "not_permitted")
    site.put("/pools/none/policies/team", {}, token=secret).refused(404, "no_such_pool")
    assert site.state() == before
    assert site.patch("/pools/gpus", {"capacity": {"gpu": 9, "tpu": 1}}, token=secret).body["capacity"] == {"gpu": 9, "tpu": 1}
    answer = site.put("/pools/gpus/policies/team", {"limit": {"gpu": 5}, "priority": 3}, token=secret)
    assert (answer.status, answer.body["limit"], answer.body["priority"]) == (200, {"gpu": 5}, 3)


def test_a_call_over_the_rate_limit_gets_a_retry_after(site: Site) -> None:
    slow, quick = site.token(rate=2), site.token()
    assert [site.get("/pools", token=slow).status for _ in range(3)] == [200, 200, 429]
    answer = site.get("/pools", token=slow)
    assert answer.refused(429, "too_many_requests")["detail"] == "this token calls too often; again in 0.50 s"
    assert answer.headers["Retry-After"] == "1"
    assert site.get("/pools", token=quick).status == 200
    site.clock.advance(0.5)
    assert site.get("/pools", token=slow).status == 200


def test_what_is_refused_counts_as_a_call_too(site: Site) -> None:
    secret = site.token("viewer", rate=1)
    site.post("/pools", POOL, token=secret).refused(403, "not_permitted")
    site.get("/pools", token=secret).refused(429, "too_many_requests")


def test_whoami(site: Site) -> None:
    secret = site.token("requester", "team", "step_operator/x", name="ci", workspaces=["a", "b"], sensitive=True)
    response = site.get("/whoami", token=secret, workspace="b").body
    assert response == {
        "name": "ci",
        "roles": ["requester"],
        "sensitive": True,
        "workspaces": ["a", "b"],
        "components": ["team", "step_operator/x"],
        "workspace": "b",
        "permissions": ["act", "read", "sensitive", "submit"],
        "token_needed": True,
    }
    site.get("/whoami", token=secret).refused(403, "other_workspace")
    site.get("/whoami", token=secret, workspace="c").refused(403, "other_workspace")


# ---- a requester sees its own


def test_a_requester_sees_its_own_in_lists_stories_and_streams(everywhere: Site) -> None:
    site = everywhere
    site.pool(gpu=1)
    for component in ("team", "step_operator/team", "other"):
        site.policy(component)
    allocation = site.submit()
    own, typed, other = (site.submit(name)["id"] for name in ("team", "step_operator/team", "other"))
    secret = site.token("requester", "team")
    json = {"token": secret, "headers": {"Accept": "application/json"}}
    assert [row["id"] for row in site.get("/requests", token=secret).items] == [own, allocation["id"]]
    assert [(row["id"], row["position"]) for row in site.get("/pools/gpus/requests", token=secret).items] == [
        (own, {"gpus": 1})
    ]
    rows = [row for page in site.every("/pools/gpus/requests", 10, token=secret, view="all") for row in page]
    assert [row["id"] for row in rows] == [allocation["id"], own]
    assert {row["request"] for row in site.get("/events", **json).items} == {allocation["id"], own}
    assert site.get("/events", **json, request=other).items == []
    assert len(site.get(f"/requests/{own}/events", token=secret).items) == 1
    for foreign in (typed, other):
        for path in (f"/requests/{foreign}", f"/requests/{foreign}/events"):
            site.get(path, token=secret).refused(403, "other_component")
        site.get(f"/requests/{foreign}", token=secret, wait_s=60).refused(403, "other_component")
        site.post(f"/requests/{foreign}/cancel", token=secret).refused(403, "other_component")
    site.get("/requests/none", token=secret).refused(404, "no_such_request")
    assert len(site.get("/requests", token=site.token("viewer")).items) == 4


def test_a_requester_hears_of_its_own_only(site: Site) -> None:
    site.pool()
    for component in ("other", "team"):
        site.policy(component)
    site.submit("other")
    own = site.submit()["id"]
    headers = {"Authorization": f"Bearer {site.token('requester', 'team')}"}
    answer = site.app.test_client().get("/api/v1/events?after=0", headers=headers, buffered=False)
    pieces = iter(answer.response)
    next(pieces)
    first = next(pieces)
    assert own in (first.decode() if isinstance(first, bytes) else first)
    answer.close()


def test_to_look_at_what_is_foreign_does_not_keep_it_from_going_stale(site: Site) -> None:
    site.pool(gpu=1)
    for component in ("team", "other"):
        site.policy(component)
    site.submit()
    waits = site.submit(queue_ttl_s=10)["id"]
    secret = site.token("requester", "other")
    site.clock.advance(9)
    site.get(f"/requests/{waits}", token=secret).refused(403, "other_component")
    site.clock.advance(2)
    site.services.cleanup.run("default")
    assert site.get("/requests", token=site.token("viewer"), status="expired").items[0]["id"] == waits
