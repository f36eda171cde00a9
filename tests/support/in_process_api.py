"""The API of one process, asked without a server in between; and what it answers, as plain data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException

from app.api.app import HttpOptions, create_app
from app.api.error_codes import ERROR_CODES
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.plan_steps import Trigger
from app.domain.pool_setting_models import PoolSettings
from app.domain.specs import RequestSpec
from app.domain.tasks import TaskSpec
from app.settings import Settings
from app.store.connection import RedisClient
from tests.support import preemptions
from tests.support.fake_redis import FakeRedisProvider
from tests.support.world import read_keys

NOW = "2023-11-14T22:13:20.000Z"
"""The time of a site's clock until it is moved."""
PROBLEM = "application/problem+json"
BROKERS = Path(__file__).with_name("brokers.toml")
"""The file of the workspaces that accept tasks."""

FRESH_POOL: dict[str, Any] = {
    "description": "",
    "held": {"gpu": 0},
    "borrowed": {},
    "queue_length": 0,
    "active_count": 0,
    "settings": PoolSettings().model_dump(),
}
"""The other fields of a new pool of 8 gpu, beside its name, capacity and use."""


DOCUMENTED = {route.name: {*route.success_statuses, *route.failure_statuses} for route in (*ROUTES, *AT_ROOT)}
"""The statuses of each route in the OpenAPI document."""


@dataclass(frozen=True)
class Said:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: Any
    """Parsed, if it is JSON; else the text."""

    @property
    def kind(self) -> str:
        """Return the media type."""
        return self.headers.get("Content-Type", "")

    @property
    def items(self) -> list[dict[str, Any]]:
        """Return the rows of a list."""
        rows: list[dict[str, Any]] = self.body["items"]
        return rows

    def refused(self, status: int, code: str) -> dict[str, Any]:
        """Return the problem document. Check that it is complete, and that the table of codes has its code with this status."""
        assert (self.status, self.body.get("code"), self.kind) == (status, code, PROBLEM), self
        assert status in ERROR_CODES[code].statuses
        assert self.body["type"] == "about:blank"
        assert self.body["status"] == status
        assert self.body["title"]
        assert self.body["detail"]
        assert self.body["request_id"] == self.headers["X-Request-Id"]
        problem: dict[str, Any] = self.body
        return problem

    def malformed(self) -> dict[str, str]:
        """Return the faults of a malformed request: reason by field."""
        return {fault["field"]: fault["reason"] for fault in self.refused(400, "malformed")["errors"]}


class Site:
    """The API on one Redis. Its time stands still until it is moved."""

    def __init__(self, client: RedisClient, settings: Settings | None = None, choices: HttpOptions | None = None) -> None:
        self.client, self.clock = client, ManualClock()
        self.services: Services = make_services(client, settings or Settings(brokers=BROKERS), self.clock, FakeRedisProvider())
        self.app = create_app(self.services, choices)
        self._http: FlaskClient = self.app.test_client()
        self._numbers = itertools.count(1)

    # ---- asking

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        workspace: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        root: bool = False,
        **query: Any,
    ) -> Said:
        """Send one call below the prefix (or at the root), with the body as JSON unless it is given raw."""
        sent = dict(headers or {})
        sent |= {"Authorization": f"Bearer {token}"} if token else {}
        sent |= {"Poolkeeper-Workspace": workspace} if workspace else {}
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        where = path if root else PREFIX + path
        with self._http.open(where, method=method, data=data, headers=sent, query_string=query or None) as answer:
            text = answer.get_data(as_text=True)
        self._check_documented(method, where, answer.status_code)
        parsed = json.loads(text) if text and "json" in answer.headers.get("Content-Type", "") else text
        return Said(answer.status_code, dict(answer.headers), parsed)

    def _check_documented(self, method: str, path: str, status: int) -> None:
        """Check that the OpenAPI document has the status, unless no route was called or the answer is that of a bug."""
        try:
            endpoint, _ = self.app.url_map.bind("localhost").match(unquote(urlsplit(path).path), method)
        except HTTPException:
            return
        assert status in DOCUMENTED.get(endpoint, {status}) | {500}, f"{endpoint} answered {status}"

    def get(self, path: str, **more: Any) -> Said:
        """Send a GET."""
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Said:
        """Send a POST."""
        return self.ask("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> Said:
        """Send a PUT."""
        return self.ask("PUT", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Said:
        """Send a PATCH."""
        return self.ask("PATCH", path, body, **more)

    def delete(self, path: str, **more: Any) -> Said:
        """Send a DELETE."""
        return self.ask("DELETE", path, **more)

    def every(self, path: str, limit: int, **more: Any) -> list[list[dict[str, Any]]]:
        """Return every page of a list."""
        pages, cursor = [], None
        while True:
            query = more | ({"cursor": cursor} if cursor else {})
            answer = self.get(path, limit=limit, **query)
            assert answer.status == 200, answer
            pages.append(answer.items)
            assert len(answer.items) <= limit
            cursor = answer.body["next_cursor"]
            if cursor is None:
                return pages
            assert len(pages) < 500, "the list has no end"

    # ---- what there shall be

    def pool(self, pool: str = "gpus", settings: Mapping[str, Any] | None = None, **capacity: int) -> dict[str, Any]:
        """Create a pool: `pool("p", gpu=4)`; its default is 8 gpu."""
        body = {"name": pool, "capacity": capacity or {"gpu": 8}, "settings": settings or {}}
        return _done(self.post("/pools", body), 201)

    def policy(self, component: str = "team", pool: str = "gpus", **fields: Any) -> dict[str, Any]:
        """Set the policy of a component, `name` or `type/name`."""
        kind, _, name = component.rpartition("/")
        query = {"component_type": kind} if kind else {}
        answer = self.put(f"/pools/{pool}/policies/{name}", fields, **query)
        return _done(answer, answer.status if answer.status == 200 else 201)

    def submit(self, component: str = "team", **fields: Any) -> dict[str, Any]:
        """Submit a request, by default for 1 gpu, and return it without the reason for its wait; unknown fields are
        resources."""
        request = _done(self.post("/requests", an_ask(component, **fields)), 201)
        return {name: value for name, value in request.items() if name != "waits"}

    def park(self, task: str = "t1", component: str = "team", **more: Any) -> dict[str, Any]:
        """Park a task, by default for 1 gpu."""
        return _done(self.post("/tasks", a_task(task, component, **more)), 201)

    def token(self, role: str = "admin", *components: str, **more: Any) -> str:
        """Create a token, and return its secret."""
        workspaces = more.pop("workspaces", ["*"])
        name = more.pop("name", f"{role}-{next(self._numbers)}")
        return self.services.tokens.create(name, role, workspaces, components, **more)[1]

    def preempt(self, waiter: str, *victims: dict[str, Any], pool: str = "gpus", reason: Trigger = Trigger.PRIORITY) -> None:
        """Preempt these allocations for a waiter, as a decision does."""
        leave = [(victim["id"], victim["fence"]) for victim in victims]
        preemptions.preempt(self.client, waiter, leave, pool=pool, reason=reason, clock=self.clock)

    def depart(self) -> None:
        """Enforce the deadlines of victims."""
        preemptions.depart(self.client, clock=self.clock)

    def state(self) -> dict[str, Any]:
        """Return all data in Redis."""
        return read_keys(self.client, "pk:*")


def an_ask(component: str = "team", **resource_fields: Any) -> dict[str, Any]:
    """Return the body of a submit: `an_ask(gpu=2, lease_s=None)`."""
    kind, _, name = component.rpartition("/")
    fields = {field: resource_fields.pop(field) for field in RequestSpec.model_fields if field in resource_fields}
    resources = fields.pop("resources", resource_fields or {"gpu": 1})
    return {"component": name, "resources": resources, **({"component_type": kind} if kind else {}), **fields}


def a_task(task: str = "t1", component: str = "team", **more: Any) -> dict[str, Any]:
    """Return the body that parks a task; other fields belong to its request: `a_task(gpu=2, redeliveries=0)`."""
    fields = {field: more.pop(field) for field in TaskSpec.model_fields if field in more}
    request = fields.pop("request", None) or an_ask(component, **more)
    return {"task": task, "name": "proj.train", "request": request, "message": {"body": "WzFd"}, **fields}


def _done(answer: Said, status: int) -> dict[str, Any]:
    assert answer.status == status, answer
    body: dict[str, Any] = answer.body
    return body
